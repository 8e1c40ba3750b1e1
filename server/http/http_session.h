#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <set>

#include "server/http/http_server.h"

namespace genesis {

class HttpSession;

// What the sessions of one server share. Used on the server's thread only.
class HttpContext {
 public:
  HttpContext(HttpServer::Handler page_handler, HttpLimits http_limits)
      : handler(std::move(page_handler)), limits(http_limits) {}

  bool Full() const { return sessions_.size() >= static_cast<size_t>(limits.max_connections); }
  void Add(HttpSession* session) { sessions_.insert(session); }
  void Remove(HttpSession* session) { sessions_.erase(session); }
  // Cancels what every session waits for; each ends on its own soon after.
  void CloseAll();

  const HttpServer::Handler handler;
  const HttpLimits limits;

 private:
  std::set<HttpSession*> sessions_;
};

// Serves requests on `socket`, one after the other, until the client leaves, is too slow, or breaks
// the protocol. Never throws; an exception of the handler is a 500.
void StartHttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpContext> context);

}  // namespace genesis
