#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace genesis {

// Converts an absl status to a gRPC status. The codes have equal numbers. Payloads, such as
// google.rpc.BadRequest, go into grpc-status-details-bin. Message and details are truncated to what
// every client accepts in a trailer (8 KiB). With a larger trailer, the client would get only
// RESOURCE_EXHAUSTED. BoundedText marks a truncated message.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace genesis
