#include "server/launchers/api_server.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/running_time.h"
#include "base/version.h"
#include "server/auth/secret_file.h"

namespace genesis {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Interval at which calls check whether the daemon is stopping.
constexpr std::chrono::milliseconds kRound(100);

// One connection. Each step starts an operation and waits for its end, the deadline or the stop.
class Exchange {
 public:
  Exchange(asio::ssl::context* tls, absl::Time deadline, const std::atomic<bool>* stopping)
      : resolver_(io_), stream_(io_, *tls), deadline_(deadline), stopping_(*stopping) {}

  error_code Connect(const std::string& host, int port) {
    tcp::resolver::results_type found;
    const error_code resolved = Wait([&](auto done) {
      resolver_.async_resolve(host, absl::StrCat(port),
                              [&found, done](const error_code& error, auto results) {
                                found = results;
                                done(error);
                              });
    });
    if (resolved) return resolved;
    const error_code connected = Wait([&](auto done) {
      beast::get_lowest_layer(stream_).async_connect(
          found, [done](const error_code& error, const auto&) { done(error); });
    });
    if (connected) return connected;
    error_code no_address;
    asio::ip::make_address(host, no_address);
    // SNI may contain a name, but not an address (RFC 6066).
    if (no_address) SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());
    stream_.set_verify_callback(asio::ssl::host_name_verification(host));
    return Wait([&](auto done) {
      stream_.async_handshake(asio::ssl::stream_base::client,
                              [done](const error_code& error) { done(error); });
    });
  }

  error_code Send(const http::request<http::string_body>& request) {
    return Wait([&](auto done) {
      http::async_write(stream_, request, [done](const error_code& error, size_t) { done(error); });
    });
  }

  error_code Receive(http::response_parser<http::string_body>& parser) {
    return Wait([&](auto done) {
      http::async_read(stream_, buffer_, parser,
                       [done](const error_code& error, size_t) { done(error); });
    });
  }

 private:
  // `begin` starts one operation and receives the function to call when it has ended.
  template <typename Begin>
  error_code Wait(const Begin& begin) {
    std::optional<error_code> ended;
    begin([&ended](const error_code& error) { ended = error; });
    io_.restart();
    while (!ended.has_value() && RunningNow() < deadline_ && !stopping_) io_.run_for(kRound);
    if (ended.has_value()) return *ended;
    resolver_.cancel();
    beast::get_lowest_layer(stream_).close();
    io_.restart();
    io_.run();
    return beast::error::timeout;
  }

  asio::io_context io_;
  tcp::resolver resolver_;
  beast::ssl_stream<beast::tcp_stream> stream_;
  beast::flat_buffer buffer_;
  const absl::Time deadline_;
  const std::atomic<bool>& stopping_;
};

absl::Status Fault(const ApiServer::Options& options, const error_code& error) {
  const std::string where =
      absl::StrCat("the Kubernetes API server ", options.host, ":", options.port);
  if (error == beast::error::timeout) {
    return absl::DeadlineExceededError(
        absl::StrCat(where, " gave no answer within ", absl::FormatDuration(options.timeout)));
  }
  if (error == http::error::body_limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat(where, " answers with more than ", ApiServer::kMaxReply, " bytes"));
  }
  const bool of_tls = error.category() == asio::error::get_ssl_category();
  return absl::UnavailableError(
      absl::StrCat(where, of_tls ? " is not trusted: " : " cannot be reached: ", error.message(),
                   of_tls ? "; check kubernetes.ca_file and kubernetes.api_server" : ""));
}

}  // namespace

absl::StatusOr<ApiServerReply> ApiServer::Call(const ApiServerCall& call) const {
  const absl::StatusOr<std::string> token =
      ReadSettingFile("kubernetes.token_file", options_.token_file);
  if (!token.ok()) return absl::FailedPreconditionError(token.status().message());
  const absl::StatusOr<std::string> authority =
      ReadSettingFile("kubernetes.ca_file", options_.ca_file);
  if (!authority.ok()) return absl::FailedPreconditionError(authority.status().message());
  asio::ssl::context tls(asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  tls.set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  tls.add_certificate_authority(asio::buffer(*authority), error);
  if (error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "kubernetes.ca_file: ", options_.ca_file, ": no certificates in PEM: ", error.message()));
  }
  Exchange exchange(&tls, RunningNow() + options_.timeout, stopping_);
  error = exchange.Connect(options_.host, options_.port);
  if (error) return Fault(options_, error);
  http::request<http::string_body> request(http::string_to_verb(call.method), call.target, 11);
  const bool is_v6 = absl::StrContains(options_.host, ":");
  request.set(http::field::host,
              absl::StrCat(is_v6 ? "[" : "", options_.host, is_v6 ? "]" : "", ":", options_.port));
  request.set(http::field::user_agent, absl::StrCat("genesisd/", kVersion));
  request.set(http::field::accept, "application/json");
  request.set(http::field::authorization,
              absl::StrCat("Bearer ", absl::StripAsciiWhitespace(*token)));
  request.set(http::field::connection, "close");
  if (!call.body.empty()) {
    request.set(http::field::content_type, call.content_type);
    request.body() = call.body;
  }
  request.prepare_payload();
  error = exchange.Send(request);
  if (error) return Fault(options_, error);
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxReply);
  error = exchange.Receive(parser);
  if (error) return Fault(options_, error);
  return ApiServerReply{static_cast<int>(parser.get().result_int()),
                        std::move(parser.get().body())};
}

}  // namespace genesis
