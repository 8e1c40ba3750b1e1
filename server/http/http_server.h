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

// Returns the TLS context for a new connection, or null to close it. Called for each connection.
using HttpTlsSource = std::function<std::shared_ptr<boost::asio::ssl::context>()>;

struct HttpLimits {
  // At the limit, a new connection replaces the one that has been idle longest. If none is idle,
  // the new one is refused.
  int max_connections = 256;
  int read_timeout_s = 10;   // For the head of a request, and for idle keep-alive.
  int body_timeout_s = 60;   // For a body read whole, and for each piece of an upload.
  int write_timeout_s = 10;  // For each 64 KiB of a response.
  size_t max_header_bytes = size_t{16} * 1024;
  size_t max_body_bytes = size_t{4} * 1024 * 1024;
  // Maximum bytes of all bodies that are read whole at one time. Above it the response is 503.
  size_t max_bodies_bytes = size_t{64} * 1024 * 1024;

  // Returns the number of connections reserved for probes. Other requests use the rest.
  int reserved_connections() const { return max_connections / 8; }
  // Returns how many connections may, above max_connections, be sent a 503. Others are closed.
  int leaving_connections() const { return 4 * max_connections; }
};

// An HTTP/1.1 server over Boost.Beast on one thread. Handlers do not block, so a slow client costs
// a connection, never a thread (prometheus-cpp's own server stalls on two half-open clients).
class HttpServer {
 public:
  // Listens on "host:port" (port 0 picks a free one), with TLS if `tls` is given. Returns
  // FAILED_PRECONDITION with the cause if it cannot be bound, INVALID_ARGUMENT if it is malformed.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpHandlers handlers,
                                                           HttpLimits limits = {},
                                                           HttpTlsSource tls = nullptr);
  virtual ~HttpServer() = default;  // Stops.
  virtual int port() const = 0;
  // Closes the listener and every connection, and waits for the thread to end. Later responses are
  // dropped. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace genesis
