#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace genesis {

// Converts a status to the form sent over gRPC and HTTP. Its payloads become details.
google::rpc::Status ToRpcStatus(const absl::Status& status);

}  // namespace genesis
