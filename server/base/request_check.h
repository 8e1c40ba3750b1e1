#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace genesis {

// Returns INVALID_ARGUMENT listing the malformed fields of a request; see
// base/text/message_limits.h. Must run before any other use of the request.
absl::Status CheckRequest(const google::protobuf::Message& request);

}  // namespace genesis
