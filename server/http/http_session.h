#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "server/http/http_context.h"

namespace genesis {

// Serves requests on `socket`, one after another, until the client leaves, is too slow, or breaks
// the protocol. Never throws: an exception of a handler becomes a 500.
void StartHttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpContext> context);

// Same, with TLS.
void StartHttpsSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpContext> context,
                       std::shared_ptr<boost::asio::ssl::context> tls);

}  // namespace genesis
