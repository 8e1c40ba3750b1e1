#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace genesis {

// Converts a core status to a gRPC status, in this one place; the codes have equal numbers. Its
// payloads, such as google.rpc.BadRequest, go into grpc-status-details-bin. Message and details are
// truncated to what every client accepts in a trailer (8 KiB): a larger one would arrive as
// RESOURCE_EXHAUSTED without them. BoundedText marks a truncated message.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace genesis
