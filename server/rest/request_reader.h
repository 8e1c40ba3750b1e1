#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "server/rest/json_limits.h"

namespace genesis {

// Functions that fill a request from HTTP. INVALID_ARGUMENT has a field violation: for an unknown
// name the nearest known one, for a value what is accepted. ReadJson lists all unknown names.

// Reads "states=JOB_STATE_QUEUED&states=JOB_STATE_RUNNING&labels.team=a&page_size=5". Repeated
// fields are repeated; a dot precedes fields of messages and keys of maps.
absl::Status ReadQuery(const std::string& query, google::protobuf::Message& request);

// Parses protobuf's JSON, with names as in the proto or in camel case. Empty text changes nothing.
// Text over a limit is refused before it is parsed.
absl::Status ReadJson(const std::string& text, google::protobuf::Message& request,
                      const JsonLimits& limits = {});

// Sets one scalar field from its %-decoded text, as in a query or a path. `name` is the field's
// name, also used in error messages.
absl::Status ReadField(const std::string& name, const std::string& text,
                       google::protobuf::Message& request);

}  // namespace genesis
