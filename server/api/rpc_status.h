#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace genesis {

// Converts a status, its payloads as details, to the form sent by gRPC and HTTP.
google::rpc::Status ToRpcStatus(const absl::Status& status);

}  // namespace genesis
