#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace genesis {

// The one place where a core status becomes a gRPC status; the codes have equal numbers. Its
// payloads, such as google.rpc.BadRequest, go into grpc-status-details-bin.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace genesis
