#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace genesis {

// Converts an absl status to a gRPC status. The codes have equal numbers. Payloads, such as
// google.rpc.BadRequest, go into grpc-status-details-bin. Message and details are truncated to what
// every client accepts in a trailer (8 KiB), because a larger one would arrive as
// RESOURCE_EXHAUSTED without them. BoundedText marks a truncated message.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace genesis
