#include "server/http/http_server.h"

#include <pthread.h>
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
#include "server/http/http_context.h"
#include "server/http/http_session.h"

namespace genesis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Pause before the next accept if the process has run out of file descriptors. Without it the loop
// would use a whole core until one is free.
constexpr std::chrono::milliseconds kAcceptRest(100);
constexpr std::chrono::seconds kCheckPeriod(1);

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on \"", address,
                     "\": expected host:port, e.g. 127.0.0.1:8080 or [::1]:8080"));
  }
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  int port = 0;
  if (!absl::SimpleAtoi(parts.port, &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on \"", address,
                                                   "\": the port is \"", parts.port,
                                                   "\", expected 0 to 65535 (0 picks a free one)"));
  }
  if (parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  return parts;
}

absl::Status CannotListen(const std::string& address, const error_code& error) {
  std::string cure = "give an address of this machine";
  if (error == asio::error::address_in_use) {
    cure = "stop the process that holds the port, or choose another port (0 picks a free one)";
  } else if (error == asio::error::access_denied) {
    cure = "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one";
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address, ": ", error.message(), "; ", cure));
}

class BeastHttpServer : public HttpServer {
 public:
  BeastHttpServer(HttpHandlers handlers, HttpLimits limits, HttpTlsSource tls)
      : loop_(std::make_shared<HttpLoop>(&io_)),
        context_(std::make_shared<HttpContext>(std::move(handlers), limits, loop_)),
        tls_(std::move(tls)) {}
  ~BeastHttpServer() override { BeastHttpServer::Stop(); }

  absl::Status Listen(const std::string& address) {
    const absl::StatusOr<HostPort> parts = Split(address);
    if (!parts.ok()) return parts.status();
    error_code error;
    const auto found = tcp::resolver(io_).resolve(
        parts->host, parts->port, tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error) return CannotListen(address, error);
    // A name may have several addresses, some of which are disabled here. Use the first that works.
    for (const auto& candidate : found) {
      error = Bind(candidate.endpoint());
      if (!error) return absl::OkStatus();
    }
    return CannotListen(address, error);
  }

  void Run() {
    Accept();
    CheckClients();
    // Block all signals in the new thread, because the daemon's main thread handles them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    // An exception destroys only its own connection, which nothing else owns.
    thread_ = std::thread([this] {
      while (!Guarded("http", [this] { io_.run(); }).ok()) {
      }
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "http");
  }

  int port() const override { return port_; }

  void Stop() override {
    const std::lock_guard<std::mutex> lock(stop_mutex_);
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      rest_.cancel();
      check_.cancel();
      loop_->Close();
      context_->CloseAll();
    });
    thread_.join();  // The thread ends by itself, because no work is left.
  }

 private:
  error_code Bind(const tcp::endpoint& endpoint) {
    error_code error, ignored;
    acceptor_.close(ignored);
    acceptor_.open(endpoint.protocol(), error);
    // On Linux, SO_REUSEADDR lets a restarted daemon bind while old connections linger, but not
    // while another process listens.
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    return error;
  }

  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!error) {
        Start(std::move(socket));
        Accept();
        return;
      }
      rest_.expires_after(kAcceptRest);
      rest_.async_wait([this](error_code) {
        if (acceptor_.is_open()) Accept();
      });
    });
  }

  void CheckClients() {
    check_.expires_after(kCheckPeriod);
    check_.async_wait([this](error_code error) {
      if (error || !acceptor_.is_open()) return;
      context_->CheckClients();
      CheckClients();
    });
  }

  void Start(tcp::socket socket) {
    if (tls_ == nullptr) return StartHttpSession(std::move(socket), context_);
    std::shared_ptr<asio::ssl::context> tls = tls_();
    if (tls != nullptr) StartHttpsSession(std::move(socket), context_, std::move(tls));
  }

  asio::io_context io_{1};
  const std::shared_ptr<HttpLoop> loop_;
  const std::shared_ptr<HttpContext> context_;
  const HttpTlsSource tls_;
  tcp::acceptor acceptor_{io_};
  asio::steady_timer rest_{io_};
  asio::steady_timer check_{io_};
  int port_ = 0;
  std::mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace

HttpHandlers Pages(std::function<HttpResponse(const HttpRequest&)> page) {
  return {.handle = [page = std::move(page)](const HttpRequest& request, const Respond& respond) {
    respond(page(request));
  }};
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpHandlers handlers,
                                                              HttpLimits limits,
                                                              HttpTlsSource tls) {
  auto server = std::make_unique<BeastHttpServer>(std::move(handlers), limits, std::move(tls));
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  server->Run();
  return server;
}

}  // namespace genesis
