#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace genesis {

// The one place where a core status becomes a gRPC status; the codes have equal numbers. Its
// payloads, such as google.rpc.BadRequest, go into grpc-status-details-bin. Message and details are
// cut to what every client takes in a trailer (8 KiB): one that is larger would arrive as
// RESOURCE_EXHAUSTED and say nothing. BoundedText marks a message that was cut.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace genesis
