#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "server/rest/json_limits.h"

namespace genesis {

// Each fills a request from what HTTP brings, and answers INVALID_ARGUMENT with every fault as a
// field violation: unknown names with the nearest known one, values with what is accepted.

// "states=JOB_STATE_QUEUED&states=JOB_STATE_RUNNING&labels.team=a&page_size=5": fields by name,
// repeated ones by repetition, those of messages and maps behind a dot.
absl::Status ReadQuery(const std::string& query, google::protobuf::Message& request);

// Protobuf's JSON; names as in the proto or in camel case. An empty text leaves all as it is. Text
// that is over a limit is refused before it is read.
absl::Status ReadJson(const std::string& text, google::protobuf::Message& request,
                      const JsonLimits& limits = {});

// One scalar field from its text, as in a query or a path: %-escapes undone before. `name` is for
// messages.
absl::Status ReadField(const std::string& name, const std::string& text,
                       google::protobuf::Message& request);

}  // namespace genesis
