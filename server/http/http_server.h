#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

struct HttpRequest {
  std::string method;
  std::string path;  // Without the query.
  std::string query;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpLimits {
  int max_connections = 256;  // Further ones are closed at once.
  int read_timeout_s = 10;    // For a whole request; also idle keep-alive.
  int write_timeout_s = 10;
  size_t max_request_bytes = size_t{16} * 1024;
};

// HTTP/1.1 over Boost.Beast on one thread of its own: the pages are small and made from snapshots,
// so one thread is enough, and a slow client costs a connection, never a thread (prometheus-cpp's
// own server stalls on two half-open clients). `handler` runs on that thread and must not block.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens on "host:port" (port 0 picks one). FAILED_PRECONDITION, naming the address and the
  // cause, when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           Handler handler, HttpLimits limits = {});
  virtual ~HttpServer() = default;  // Stops.
  virtual int port() const = 0;
  // Closes the listener and every connection; returns when the thread has ended. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace genesis
