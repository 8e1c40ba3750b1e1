#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/settings/settings.h"
#include "server/auth/tls_files.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/reset_watch.h"
#include "server/rpc/unknown_methods.h"

namespace genesis {

// The gRPC server for clients, on grpc.listen and, if set, grpc.unix_socket. Serves the given
// services and standard health. Limits connections, file descriptors, message and header sizes,
// open and abandoned calls per connection; sends keepalives on idle connections.
//
// Owner: the daemon. Threads: gRPC's, the acceptor's and the reset watch's. Failure: none after the
// start.
class TrainingListener {
 public:
  struct Options {
    const Settings* settings = nullptr;         // Read during Start only.
    const TlsStore* tls = nullptr;              // Null disables TLS. Must outlive the listener.
    std::vector<grpc::Service*> services = {};  // Must outlive it too.
    // Called when the server closes a connection, with the reason: "file_handles",
    // "max_connections" or "resets".
    ConnectionAcceptor::Refused refused = [](const std::string&) {};
    // Called for each call of an unknown method.
    std::function<void()> unknown_method = [] {};
  };

  // Returns FAILED_PRECONDITION with the address and the cause if an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<TrainingListener>> Start(const Options& options);
  ~TrainingListener();
  TrainingListener(const TrainingListener&) = delete;
  TrainingListener& operator=(const TrainingListener&) = delete;

  int port() const { return port_; }
  grpc::HealthCheckServiceInterface* health() { return server_->GetHealthCheckService(); }
  // Stops accepting connections. Open calls have until `deadline`. Idempotent.
  void Stop(std::chrono::system_clock::time_point deadline);

 private:
  using External = grpc::experimental::ExternalConnectionAcceptor;

  TrainingListener(int max_connections, const Options& options)
      : refused_(options.refused),
        unknown_methods_(options.unknown_method),
        acceptor_(max_connections, options.refused) {}
  void OnFlood(const std::string& peer);
  void AddSockets(grpc::ServerBuilder& builder, ListenSockets sockets,
                  const std::shared_ptr<grpc::ServerCredentials>& credentials);

  int port_ = 0;
  std::vector<std::unique_ptr<External>> externals_;
  const ConnectionAcceptor::Refused refused_;
  UnknownMethods unknown_methods_;
  ConnectionAcceptor acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<ResetWatch> reset_watch_;
};

}  // namespace genesis
