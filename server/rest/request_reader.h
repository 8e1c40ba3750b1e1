#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "server/rest/json_limits.h"

namespace genesis {

// Each function fills a request from HTTP. INVALID_ARGUMENT has every error as a field violation:
// unknown names with the nearest known one, values with what is accepted.

// "states=JOB_STATE_QUEUED&states=JOB_STATE_RUNNING&labels.team=a&page_size=5": fields by name,
// repeated ones by repetition, fields of messages and keys of maps after a dot.
absl::Status ReadQuery(const std::string& query, google::protobuf::Message& request);

// Parses protobuf's JSON; names as in the proto or in camel case. An empty text changes nothing.
// Text over a limit is refused before it is parsed.
absl::Status ReadJson(const std::string& text, google::protobuf::Message& request,
                      const JsonLimits& limits = {});

// Sets one scalar field from its text, as in a query or a path, already %-decoded. `name` is for
// messages.
absl::Status ReadField(const std::string& name, const std::string& text,
                       google::protobuf::Message& request);

}  // namespace genesis
