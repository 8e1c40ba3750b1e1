#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/connection_acceptor.h"

namespace genesis {

// The gRPC server for the workers of this machine, on a unix socket that only the daemon's user can
// open. Like TrainingListener, it accepts again after a shortage of file descriptors.
//
// Owner: the daemon. Threads: gRPC's and the acceptor's. Failure: none after the start.
class WorkerListener {
 public:
  // Serves `service`, which must outlive the listener, and the standard health service.
  // FAILED_PRECONDITION with `path` and the cause if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<WorkerListener>> Start(const std::string& path,
                                                               grpc::Service* service);
  ~WorkerListener() { Stop(std::chrono::system_clock::now()); }
  WorkerListener(const WorkerListener&) = delete;
  WorkerListener& operator=(const WorkerListener&) = delete;

  // Stops accepting connections. Open calls have until `deadline`. Idempotent.
  void Stop(std::chrono::system_clock::time_point deadline);

 private:
  WorkerListener();

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> external_;
  std::unique_ptr<grpc::Server> server_;
  // Stops before the server, so that no connection is passed to a stopped server.
  ConnectionAcceptor acceptor_;
};

}  // namespace genesis
