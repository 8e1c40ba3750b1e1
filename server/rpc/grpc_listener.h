#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// A running gRPC server and where it listens.
struct GrpcListener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // 0 for a unix socket.
};

// Listens on "host:port" (port 0 picks one) or "unix:/path" without encryption, for one service,
// with the standard health service and, on TCP, reflection. Never shares a port with another
// process. FAILED_PRECONDITION naming the address and the cause when it cannot be bound.
absl::StatusOr<GrpcListener> StartGrpcListener(const std::string& address, grpc::Service* service);

}  // namespace genesis
