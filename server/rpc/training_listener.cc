#include "server/rpc/training_listener.h"

#include <grpcpp/health_check_service_interface.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/rpc/server_tls.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// docs/security.md publishes these limits, which clients' keepalive settings must respect.
constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(20);
constexpr absl::Duration kMinClientPing = absl::Seconds(10);
// Time limits of a connection without a valid handshake, and of one without a call.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(20);
constexpr absl::Duration kMaxIdle = absl::Hours(1);
constexpr int kMaxCallsPerConnection = 1000;
constexpr int kMaxHeaderBytes = 16 * 1024;

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void SetLimits(const Settings& settings, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(settings.grpc.max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             Milliseconds(absl::Seconds(settings.grpc.keepalive_seconds)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kMinClientPing));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(kMaxIdle));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingListener>> TrainingListener::Start(const Options& options) {
  const Settings& settings = *options.settings;
  absl::StatusOr<ListenSockets> tcp = ListenSockets::Tcp(settings.grpc.listen);
  if (!tcp.ok()) return tcp.status();
  std::unique_ptr<TrainingListener> listener(
      new TrainingListener(settings.grpc.max_connections, options));
  listener->port_ = tcp->port();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetLimits(settings, builder);
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  builder.RegisterCallbackGenericService(&listener->unknown_methods_);
  listener->AddSockets(
      builder, *std::move(tcp),
      options.tls == nullptr
          ? grpc::InsecureServerCredentials()
          : ReloadingTls(options.tls,
                         /*client_certificates=*/!settings.tls.client_ca_file.empty()));
  if (!settings.grpc.unix_socket.empty()) {
    absl::StatusOr<ListenSockets> local = ListenSockets::Unix(
        settings.grpc.unix_socket, static_cast<mode_t>(settings.grpc.unix_socket_mode));
    if (!local.ok()) return local.status();
    listener->AddSockets(builder, *std::move(local), grpc::InsecureServerCredentials());
  }
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "gRPC could not start a server for ", settings.grpc.listen, "; its log line says why"));
  }
  listener->acceptor_.Start();
  listener->reset_watch_.emplace(
      kMaxCallsPerConnection,
      [each = listener.get()](const std::string& peer) { each->OnFlood(peer); });
  return listener;
}

void TrainingListener::AddSockets(grpc::ServerBuilder& builder, ListenSockets sockets,
                                  const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  externals_.push_back(
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials));
  External* external = externals_.back().get();
  const int first = sockets.fds().front();
  acceptor_.Add(std::move(sockets), [external, first](int fd) {
    External::NewConnectionParameters connection;
    connection.listener_fd = first;
    connection.fd = fd;
    external->HandleNewConnection(&connection);
  });
}

void TrainingListener::OnFlood(const std::string& peer) {
  const bool closed = acceptor_.Close(peer);
  if (closed) refused_("resets");
  const char* done = "its connection is closed";
  if (!closed && absl::StartsWith(peer, "unix:")) {
    done = "a client of a unix socket is not closed: end the process that does it";
  } else if (!closed) {
    done = "it has closed its connection itself";
  }
  spdlog::warn("{} opened and abandoned {} calls or more, faster than {} a second; {}", peer,
               ResetBudget::kBurst, ResetBudget::kPerSecond, done);
}

void TrainingListener::Stop(std::chrono::system_clock::time_point deadline) {
  reset_watch_.reset();
  acceptor_.Stop();
  if (server_ != nullptr) server_->Shutdown(deadline);
}

TrainingListener::~TrainingListener() { Stop(std::chrono::system_clock::now()); }

}  // namespace genesis
