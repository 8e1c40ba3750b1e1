#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Listens on the workers' unix socket at `path`, for one service, with the standard health service.
// FAILED_PRECONDITION naming the path and the cause when it cannot be bound.
absl::StatusOr<std::unique_ptr<grpc::Server>> StartWorkerListener(const std::string& path,
                                                                  grpc::Service* service);

}  // namespace genesis
