#include "server/rpc/worker_listener.h"

#include <sys/stat.h>
#include <sys/un.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// Reports are small. The largest message is a job's specification.
constexpr int kMaxMessageBytes = 4 * 1024 * 1024;
// Each worker has one connection, and no host runs this many workers.
constexpr int kMaxConnections = 4096;

}  // namespace

WorkerListener::WorkerListener()
    : acceptor_(kMaxConnections, [](const std::string& reason) {
        spdlog::warn("a worker's connection is refused: {}", reason);
      }) {}

absl::StatusOr<std::unique_ptr<WorkerListener>> WorkerListener::Start(const std::string& path,
                                                                      grpc::Service* service) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the workers' socket path ", path, " has ", path.size(), " characters; at most ",
        sizeof(sockaddr_un::sun_path) - 1, " fit: choose a shorter --data-dir"));
  }
  // Workers are gRPC clients, and in gRPC's target syntax an address ends at a comma.
  if (absl::StrContains(path, ',')) {
    return absl::FailedPreconditionError(
        absl::StrCat("the workers' socket path ", QuoteValue(path),
                     " has a comma, so no worker could reach it: choose another --data-dir"));
  }
  absl::StatusOr<ListenSockets> sockets = ListenSockets::Unix(path, S_IRUSR | S_IWUSR);
  if (!sockets.ok()) return sockets.status();
  std::unique_ptr<WorkerListener> listener(new WorkerListener);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(service);
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  listener->external_ = builder.experimental().AddExternalConnectionAcceptor(
      Type::FROM_FD, grpc::InsecureServerCredentials());
  const int first = sockets->fds().front();
  auto* const external = listener->external_.get();
  listener->acceptor_.Add(*std::move(sockets), [external, first](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = first;
    connection.fd = fd;
    external->HandleNewConnection(&connection);
  });
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gRPC could not start a server for the workers' socket ", path, "; its log line says why"));
  }
  listener->acceptor_.Start();
  return listener;
}

void WorkerListener::Stop(std::chrono::system_clock::time_point deadline) {
  acceptor_.Stop();
  if (server_ != nullptr) server_->Shutdown(deadline);
}

}  // namespace genesis
