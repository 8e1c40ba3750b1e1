#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace genesis {

// The status with its payloads as details, as gRPC and HTTP send it.
google::rpc::Status ToRpcStatus(const absl::Status& status);

}  // namespace genesis
