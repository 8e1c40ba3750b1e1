#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace genesis {

// INVALID_ARGUMENT with every fault in the shape of a request: see base/text/message_limits.h.
// Before anything else looks at it.
absl::Status CheckRequest(const google::protobuf::Message& request);

}  // namespace genesis
