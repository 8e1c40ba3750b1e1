#include "server/http/http_session.h"

#include <spdlog/spdlog.h>

#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace genesis {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::seconds kLinger(1);
constexpr size_t kDiscardBytes = 4096;

// What to answer when a request could not be read; empty when nobody is left to answer.
std::optional<HttpResponse> AnswerTo(const error_code& error, const HttpLimits& limits) {
  const std::string limit = std::to_string(limits.max_request_bytes) + " bytes\n";
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return HttpResponse{.status = 431, .body = "The request's header is over " + limit};
  }
  if (error == http::error::body_limit) {
    return HttpResponse{.status = 413, .body = "The request's body is over " + limit};
  }
  // Anything else of Beast's is bad syntax; the rest (timeout, reset) leaves no one to talk to.
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != make_error_code(http::error::end_of_stream).category()) {
    return std::nullopt;
  }
  return HttpResponse{.status = 400, .body = "Not an HTTP/1.1 request: " + error.message() + "\n"};
}

}  // namespace

// One connection. Owned by its pending operation; lives on the server's thread.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(tcp::socket socket, std::shared_ptr<HttpContext> context)
      : stream_(std::move(socket)), context_(std::move(context)) {
    context_->Add(this);
  }
  ~HttpSession() { context_->Remove(this); }

  void Read() {
    parser_.emplace();
    const size_t limit = context_->limits.max_request_bytes;
    parser_->header_limit(static_cast<std::uint32_t>(limit));
    parser_->body_limit(limit);
    // One deadline for the whole request: bytes that drip in do not extend it.
    stream_.expires_after(std::chrono::seconds(context_->limits.read_timeout_s));
    http::async_read(stream_, buffer_, *parser_,
                     beast::bind_front_handler(&HttpSession::OnRead, shared_from_this()));
  }

  void Close() { stream_.close(); }

 private:
  void OnRead(error_code error, size_t) {
    if (!error) {
      const http::request<http::string_body>& request = parser_->get();
      Write(Handle(request), request.version(), request.keep_alive(),
            request.method() == http::verb::head);
      return;
    }
    const std::optional<HttpResponse> answer = AnswerTo(error, context_->limits);
    if (answer.has_value()) {
      Write(*answer, 11, false, false);
    } else {
      End();
    }
  }

  HttpResponse Handle(const http::request<http::string_body>& request) {
    HttpRequest plain;
    plain.method = std::string(request.method_string());
    const std::string target(request.target());
    const size_t question = target.find('?');
    plain.path = target.substr(0, question);
    if (question != std::string::npos) plain.query = target.substr(question + 1);
    try {
      return context_->handler(plain);
    } catch (const std::exception& error) {
      spdlog::error("{} {} failed: {}", plain.method, plain.path, error.what());
      return {.status = 500, .body = "The page could not be made; the daemon's log says why.\n"};
    }
  }

  void Write(const HttpResponse& answer, unsigned version, bool keep_alive, bool head) {
    response_ = {};
    response_.version(version);
    response_.result(static_cast<unsigned>(answer.status));
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    // RFC 9110 asks for it; pages can only be read.
    if (answer.status == 405) response_.set(http::field::allow, "GET, HEAD");
    response_.keep_alive(keep_alive);
    response_.content_length(answer.body.size());
    if (!head) response_.body() = answer.body;
    serializer_.emplace(response_);
    serializer_->split(head);
    stream_.expires_after(std::chrono::seconds(context_->limits.write_timeout_s));
    auto done = beast::bind_front_handler(&HttpSession::OnWritten, shared_from_this(), keep_alive);
    if (head) {
      http::async_write_header(stream_, *serializer_, std::move(done));
    } else {
      http::async_write(stream_, *serializer_, std::move(done));
    }
  }

  void OnWritten(bool keep_alive, error_code error, size_t) {
    if (error || !keep_alive) {
      End();
    } else {
      Read();
    }
  }

  // Closing with bytes unread resets the connection, and the client would lose our answer; so what
  // it still sends is read and thrown away for a moment.
  void End() {
    error_code error;
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    if (error) return;
    stream_.expires_after(kLinger);
    Discard();
  }

  void Discard() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kDiscardBytes),
                            [self = shared_from_this()](error_code error, size_t) {
                              if (!error) self->Discard();
                            });
  }

  beast::tcp_stream stream_;
  const std::shared_ptr<HttpContext> context_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

void HttpContext::CloseAll() {
  for (HttpSession* session : sessions_) session->Close();
}

void StartHttpSession(tcp::socket socket, std::shared_ptr<HttpContext> context) {
  std::make_shared<HttpSession>(std::move(socket), std::move(context))->Read();
}

}  // namespace genesis
