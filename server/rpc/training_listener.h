#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/settings/settings.h"
#include "server/auth/tls_files.h"
#include "server/rpc/connection_acceptor.h"

namespace genesis {

// The gRPC server that clients reach, on grpc.listen and, when it is set, on grpc.unix_socket: the
// services it is given and the standard health service. Bounded in connections, file handles,
// message and header sizes and calls per connection; asks silent connections whether they live.
//
// Owner: the daemon. Threads: gRPC's and the acceptor's. Failure: none after the start.
class TrainingListener {
 public:
  struct Options {
    const Settings* settings = nullptr;         // Read during Start only.
    const TlsStore* tls = nullptr;              // Null: no TLS. Outlives the listener.
    std::vector<grpc::Service*> services = {};  // Outlive it too.
    ConnectionAcceptor::Refused refused = [](const std::string&) {};
  };

  // FAILED_PRECONDITION naming the address and the cause when one cannot be bound.
  static absl::StatusOr<std::unique_ptr<TrainingListener>> Start(const Options& options);
  ~TrainingListener();
  TrainingListener(const TrainingListener&) = delete;
  TrainingListener& operator=(const TrainingListener&) = delete;

  int port() const { return port_; }
  grpc::HealthCheckServiceInterface* health() { return server_->GetHealthCheckService(); }
  // No new connections; open calls have until then. Idempotent.
  void Stop(std::chrono::system_clock::time_point deadline);

 private:
  using External = grpc::experimental::ExternalConnectionAcceptor;

  TrainingListener(int max_connections, ConnectionAcceptor::Refused refused)
      : acceptor_(max_connections, std::move(refused)) {}
  void AddSockets(grpc::ServerBuilder& builder, ListenSockets sockets,
                  const std::shared_ptr<grpc::ServerCredentials>& credentials);

  int port_ = 0;
  std::vector<std::unique_ptr<External>> externals_;
  std::unique_ptr<grpc::Server> server_;
  ConnectionAcceptor acceptor_;  // Before the server goes, so that nothing is handed to it then.
};

}  // namespace genesis
