#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/http_message.h"

namespace boost::asio::ssl {
class context;
}

namespace genesis {

// The TLS context of a connection to come; asked for each. nullptr closes the connection.
using HttpTlsSource = std::function<std::shared_ptr<boost::asio::ssl::context>()>;

struct HttpLimits {
  // One more closes the connection that has been idle longest, or is closed where none is.
  int max_connections = 256;
  int read_timeout_s = 10;   // For the head of a request, and for idle keep-alive.
  int body_timeout_s = 60;   // For a body that is read whole; for each piece of an upload.
  int write_timeout_s = 10;  // For each 64 KiB of an answer.
  size_t max_header_bytes = size_t{16} * 1024;
  size_t max_body_bytes = size_t{4} * 1024 * 1024;
  // Bytes of all bodies that are read whole at one time; one too many is a 503.
  size_t max_bodies_bytes = size_t{64} * 1024 * 1024;

  // For probes: other requests are under way on the other connections only.
  int reserved_connections() const { return max_connections / 8; }
};

// HTTP/1.1 over Boost.Beast on one thread of its own: handlers do not block, and a slow client
// costs a connection, never a thread (prometheus-cpp's own server stalls on two half-open clients).
class HttpServer {
 public:
  // Listens on "host:port" (port 0 picks one), with TLS where `tls` is given. FAILED_PRECONDITION,
  // naming the address and the cause, when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers,
                                                           HttpLimits limits = {},
                                                           HttpTlsSource tls = nullptr);
  virtual ~HttpServer() = default;  // Stops.
  virtual int port() const = 0;
  // Closes the listener and every connection; returns when the thread has ended. Idempotent.
  // Answers that come later go nowhere.
  virtual void Stop() = 0;
};

}  // namespace genesis
