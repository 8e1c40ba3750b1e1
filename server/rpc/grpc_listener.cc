#include "server/rpc/grpc_listener.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// What gRPC itself takes by default: room for a batch of transitions. More comes as more batches.
constexpr int kMaxRequestBytes = 4 * 1024 * 1024;

absl::Status BindError(const std::string& address, const std::string& cause) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address, ": ", cause,
                   "; stop what uses it, or choose another with --grpc-listen"));
}

// gRPC says only "failed to bind"; a trial bind of our own says why.
absl::Status TryBind(const std::string& address) {
  const size_t colon = address.rfind(':');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(),
                                &hints, &found);
  if (error != 0) return BindError(address, gai_strerror(error));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int bound = bind(fd, found->ai_addr, found->ai_addrlen);
  const int listening = bound == 0 ? listen(fd, 1) : bound;
  const int bind_errno = errno;
  close(fd);
  freeaddrinfo(found);
  return listening == 0 ? absl::OkStatus() : BindError(address, strerror(bind_errno));
}

absl::Status CheckSocketPath(const std::string& address) {
  const size_t length = address.size() - strlen("unix:");
  if (length < sizeof(sockaddr_un::sun_path)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the workers' socket path ", address, " has ", length, " characters; at most ",
                   sizeof(sockaddr_un::sun_path) - 1, " fit: choose a shorter --data-dir"));
}

}  // namespace

absl::StatusOr<GrpcListener> StartGrpcListener(const std::string& address, grpc::Service* service) {
  const bool is_unix = absl::StartsWith(address, "unix:");
  const absl::Status possible = is_unix ? CheckSocketPath(address) : TryBind(address);
  if (!possible.ok()) return possible;
  grpc::EnableDefaultHealthCheckService(true);
  if (!is_unix) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.RegisterService(service);
  GrpcListener listener;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &listener.port);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) return BindError(address, "gRPC could not bind it");
  return listener;
}

}  // namespace genesis
