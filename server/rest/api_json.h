#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/http/http_message.h"

namespace genesis {

// Returns protobuf's JSON on one line, with a newline. It has names as in the proto, default
// values, and 64-bit numbers as strings.
std::string ToJsonLine(const google::protobuf::Message& message);

HttpResponse JsonResponse(const google::protobuf::Message& message);

// Sets the fields given in the path. INVALID_ARGUMENT if body or query contradict them.
absl::Status ReadPathFields(const std::map<std::string, std::string>& fields,
                            google::protobuf::Message& message);

}  // namespace genesis
