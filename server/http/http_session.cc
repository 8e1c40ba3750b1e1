#include "server/http/http_session.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/auth/certificate_name.h"
#include "server/base/guard.h"
#include "server/http/http_framing.h"
#include "server/http/http_sender.h"

namespace genesis {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kLinger(1);
constexpr size_t kDiscardBytes = 4096;
constexpr size_t kReadBytes = 4096;
// boost::none does not work here: in Beast 1.74 every length exceeds it.
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr size_t kPieceBytes = size_t{64} * 1024;

struct Refusal {
  int status = 400;
  std::string why;
};

// Returns the response to a request that could not be read; empty if the client is gone.
std::optional<Refusal> AnswerTo(const error_code& error, const HttpLimits& limits) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refusal{
        431, "The request's header is over " + std::to_string(limits.max_header_bytes) + " bytes"};
  }
  // After these two errors, and those of other libraries (timeout, reset), the client is gone.
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != make_error_code(http::error::end_of_stream).category()) {
    return std::nullopt;
  }
  return Refusal{400, "Not an HTTP/1.1 request: " + error.message()};
}

HttpRequest PlainHead(const http::request<http::empty_body>& head) {
  HttpRequest plain;
  plain.method = std::string(head.method_string());
  const std::string target(head.target());
  const size_t question = target.find('?');
  plain.path = target.substr(0, question);
  if (question != std::string::npos) plain.query = target.substr(question + 1);
  for (const auto& field : head) {
    const std::string name = absl::AsciiStrToLower(std::string(field.name_string()));
    std::string& value = plain.headers[name];
    // RFC 9110, 5.3: join repeated fields. Duplicates of single fields were refused before.
    absl::StrAppend(&value, value.empty() ? "" : ", ", std::string(field.value()));
  }
  return plain;
}

using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// Returns the name in the client's verified certificate; "" if the client sent none.
absl::StatusOr<std::string> NameOfPeer(TlsStream& stream) {
  X509* const certificate = SSL_get1_peer_certificate(stream.native_handle());
  if (certificate == nullptr) return "";
  absl::StatusOr<std::string> name = NameOfCertificate(*certificate);
  X509_free(certificate);
  return name;
}

// One connection. `Stream` is a beast::tcp_stream or wraps one.
template <typename Stream>
class HttpSession final : public HttpSessionBase,
                          public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  // `tls` is the context that created the stream, if it uses TLS.
  HttpSession(Stream stream, std::shared_ptr<HttpContext> context,
              std::shared_ptr<boost::asio::ssl::context> tls = nullptr)
      : context_(std::move(context)),
        tls_(std::move(tls)),
        stream_(std::move(stream)),
        sender_(&stream_, context_.get()) {
    context_->Add(this);
    error_code error;
    const tcp::endpoint peer = beast::get_lowest_layer(stream_).socket().remote_endpoint(error);
    peer_ = (peer.address().is_v6() ? "ipv6:[" : "ipv4:") + peer.address().to_string(error) +
            (peer.address().is_v6() ? "]:" : ":") + std::to_string(peer.port());
  }
  ~HttpSession() override {
    EndRequest();
    context_->Remove(this);
  }

  // Called once, if the stream uses TLS.
  void Handshake() {
    context_->SetIdle(this);
    Arm(context_->limits.read_timeout_s);
    stream_.async_handshake(boost::asio::ssl::stream_base::server,
                            [self = Shared()](error_code error) {
                              if (error) return;
                              self->certificate_ = NameOfPeer(self->stream_);
                              self->ReadHead();
                            });
  }

  void ReadHead() {
    EndRequest();
    if (leaving_) return RefuseConnection();
    head_parser_.emplace();
    head_parser_->header_limit(static_cast<std::uint32_t>(context_->limits.max_header_bytes));
    head_parser_->body_limit(kNoLimit);
    scanned_ = 0;
    context_->SetIdle(this);
    // One deadline for the whole head, so that trickled bytes do not extend it.
    Arm(context_->limits.read_timeout_s);
    ReadMoreOfHead();
  }

  void Close() override { beast::get_lowest_layer(stream_).close(); }

  void Leave() override {
    leaving_ = true;
    // A client that was served expects that an idle connection may end, and tries again by itself.
    if (reads_head_ && served_) return Close();
    if (reads_head_) beast::get_lowest_layer(stream_).cancel();  // ReadMoreOfHead goes on.
  }

  // Reads nothing, because the bytes may be those of the next request.
  void CheckClient() override {
    pollfd state{beast::get_lowest_layer(stream_).socket().native_handle(), POLLRDHUP, 0};
    if (poll(&state, 1, 0) > 0) *client_gone_ = true;
  }

 private:
  std::shared_ptr<HttpSession> Shared() { return this->shared_from_this(); }

  void Arm(int seconds) {
    beast::get_lowest_layer(stream_).expires_after(std::chrono::seconds(seconds));
  }

  // Checks the whole head before Beast parses it, because Beast repairs what must be refused.
  void ReadMoreOfHead() {
    const absl::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    if (const std::optional<size_t> end = FindHeadEnd(bytes, scanned_)) {
      return ParseHead(bytes.substr(0, *end));
    }
    scanned_ = bytes.size();
    const size_t most = context_->limits.max_header_bytes;
    if (bytes.size() >= most) return RefuseHead(http::error::header_limit);
    reads_head_ = true;
    stream_.async_read_some(buffer_.prepare(std::min(kReadBytes, most - bytes.size())),
                            [self = Shared()](error_code error, size_t count) {
                              self->reads_head_ = false;
                              if (self->leaving_) return self->RefuseConnection();
                              if (error) return self->End();
                              self->buffer_.commit(count);
                              if (!Guarded("http", [&] { self->ReadMoreOfHead(); }).ok())
                                self->Close();
                            });
  }

  void ParseHead(absl::string_view bytes) {
    const std::string fault = HeadFault(bytes);
    if (!fault.empty()) {
      return RefuseHead({400, "Not an HTTP/1.1 request: " + fault});
    }
    error_code error;
    head_parser_->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    if (!error && !head_parser_->is_header_done()) error = http::error::bad_field;
    if (error) return RefuseHead(error);
    buffer_.consume(bytes.size());
    OnHead();
  }

  void RefuseHead(const error_code& error) {
    const std::optional<Refusal> refusal = AnswerTo(error, context_->limits);
    if (refusal.has_value()) return RefuseHead(*refusal);
    End();
  }

  void RefuseConnection() {
    RefuseHead({503, absl::StrCat("Too many connections are open (accepted: ",
                                  context_->limits.max_connections, "); try again")});
  }

  void RefuseHead(const Refusal& refusal) {
    terms_ = {};
    Send(Refused(HttpRequest(), refusal.status, refusal.why));
  }

  void OnHead() {
    const http::request<http::empty_body>& head = head_parser_->get();
    request_ = PlainHead(head);
    request_.peer = peer_;
    request_.certificate = certificate_.value_or("");
    request_.certificate_fault = certificate_.status();
    client_gone_ = std::make_shared<std::atomic<bool>>(false);
    request_.client_gone = client_gone_;
    if (head_parser_->content_length()) request_.content_length = *head_parser_->content_length();
    terms_ = {.version = head.version(),
              .keep_alive = head.keep_alive(),
              .head = head.method() == http::verb::head};
    if (!TakePlace()) {
      return Refuse(503, "Too many requests are under way; try again");
    }
    RunHandler([this] {
      if (!context_->handlers.upload) return;
      HttpUploadStart start = context_->handlers.upload(request_, MakeRespond());
      upload_ = std::move(start.upload);
      if (start.refusal) Answer(*std::move(start.refusal));
    });
    if (responded_) return;
    if (upload_ != nullptr || MakeRoom()) Continue();
  }

  // Reserves a slot for a request that may take long. Probes need none, and their connections may
  // be closed at any time to make room for a new one.
  bool TakePlace() {
    const bool has_body = head_parser_->chunked() || request_.content_length.value_or(0) > 0;
    const auto& is_probe = context_->handlers.is_probe;
    if (!has_body && is_probe && is_probe(request_)) {
      context_->SetIdle(this);  // Makes it the last to be closed.
      return true;
    }
    context_->SetBusy(this);
    has_place_ = context_->TakePlace();
    return has_place_;
  }

  // Reserves memory for the body. Returns false if the request was refused.
  bool MakeRoom() {
    const HttpLimits& limits = context_->limits;
    const size_t length =
        request_.content_length.value_or(head_parser_->chunked() ? limits.max_body_bytes : 0);
    if (length > limits.max_body_bytes) {
      Refuse(413, "The request's body is over " + std::to_string(limits.max_body_bytes) + " bytes");
      return false;
    }
    if (!context_->TakeRoom(length)) {
      Refuse(503, "Too many large requests are being read; try again");
      return false;
    }
    room_ = length;
    return true;
  }

  // Sends "100 Continue" to a client that waits for it.
  void Continue() {
    if (!absl::EqualsIgnoreCase(request_.Header("expect"), "100-continue")) return ReadBody();
    static constexpr char kLeave[] = "HTTP/1.1 100 Continue\r\n\r\n";
    Arm(context_->limits.write_timeout_s);
    boost::asio::async_write(stream_, boost::asio::buffer(kLeave, sizeof(kLeave) - 1),
                             [self = Shared()](error_code error, size_t) {
                               if (!error) self->ReadBody();
                             });
  }

  void ReadBody() {
    if (upload_ != nullptr) {
      upload_parser_.emplace(*std::move(head_parser_));
      upload_parser_->body_limit(kNoLimit);
      return ReadPiece();
    }
    body_parser_.emplace(*std::move(head_parser_));
    body_parser_->body_limit(context_->limits.max_body_bytes);
    Arm(context_->limits.body_timeout_s);
    http::async_read(stream_, buffer_, *body_parser_,
                     beast::bind_front_handler(&HttpSession::OnBody, Shared()));
  }

  void OnBody(error_code error, size_t) {
    if (error == http::error::body_limit) {
      return Refuse(413, "The request's body is over " +
                             std::to_string(context_->limits.max_body_bytes) + " bytes");
    }
    if (error) {
      const std::optional<Refusal> refusal = AnswerTo(error, context_->limits);
      if (!refusal.has_value()) return End();
      terms_.keep_alive = false;
      return Send(Refused(HttpRequest(), refusal->status, refusal->why));
    }
    request_.body = std::move(body_parser_->get().body());
    context_->Hold(Shared());
    RunHandler([this] { context_->handlers.handle(request_, MakeRespond()); });
  }

  void ReadPiece() {
    if (upload_parser_->is_done()) {
      context_->Hold(Shared());
      return RunHandler([this] { upload_->OnEnd(); });
    }
    piece_.resize(kPieceBytes);
    upload_parser_->get().body().data = piece_.data();
    upload_parser_->get().body().size = piece_.size();
    Arm(context_->limits.body_timeout_s);
    http::async_read_some(stream_, buffer_, *upload_parser_,
                          beast::bind_front_handler(&HttpSession::OnPiece, Shared()));
  }

  void OnPiece(error_code error, size_t) {
    if (error && error != http::error::need_buffer) return End();
    piece_.resize(kPieceBytes - upload_parser_->get().body().size);
    if (piece_.empty()) return ReadPiece();
    context_->Hold(Shared());
    std::weak_ptr<HttpSession> weak = Shared();
    RunHandler([&] {
      upload_->OnPiece(std::move(piece_), [weak, loop = context_->loop] {
        loop->Post([weak] {
          const auto self = weak.lock();
          if (self == nullptr || self->responded_) return;
          self->context_->Release(self);
          self->ReadPiece();
        });
      });
    });
  }

  // Runs a handler. An exception becomes a 500.
  template <typename Call>
  void RunHandler(const Call& call) {
    if (Guarded("http", call).ok()) return;
    Refuse(500, "The page could not be made; the daemon's log says why.");
  }

  // Returns the callback for handlers. It posts the response to this thread and does nothing after
  // the end of this request.
  Respond MakeRespond() {
    std::weak_ptr<HttpSession> weak = Shared();
    return [weak, turn = turn_, loop = context_->loop](HttpResponse callback) {
      auto shared = std::make_shared<HttpResponse>(std::move(callback));
      loop->Post([weak, turn, shared] {
        const auto self = weak.lock();
        if (self != nullptr && self->turn_ == turn) self->Answer(std::move(*shared));
      });
    };
  }

  void Refuse(int status, const std::string& why) { Answer(Refused(request_, status, why)); }

  HttpResponse Refused(const HttpRequest& request, int status, const std::string& why) const {
    if (context_->handlers.refuse) return context_->handlers.refuse(request, status, why);
    return {.status = status, .body = why + "\n"};
  }

  void Answer(HttpResponse callback) {
    if (responded_) return;
    context_->Release(Shared());
    // Unread bytes of the body would be parsed as the next request.
    const bool read_whole = upload_ != nullptr ? upload_parser_ && upload_parser_->is_done()
                                               : body_parser_ && body_parser_->is_done();
    if (!read_whole) terms_.keep_alive = false;
    Send(std::move(callback));
  }

  void Send(HttpResponse callback) {
    responded_ = true;
    const bool endless = callback.stream != nullptr && !callback.stream_length.has_value();
    // `this` stays valid, because the sender is a member of it.
    sender_.Send(Shared(), std::move(callback), terms_, [this, endless](bool usable) {
      served_ = true;
      if (usable && !leaving_) {
        ReadHead();
      } else if (endless) {
        Close();  // Cancels the read of WatchForEnd.
      } else {
        End();
      }
    });
    if (endless) WatchForEnd();
  }

  // Reads until the client is gone, which a stream without pending events would not notice.
  void WatchForEnd() {
    beast::get_lowest_layer(stream_).expires_never();
    stream_.async_read_some(buffer_.prepare(kDiscardBytes),
                            [self = Shared()](error_code error, size_t) {
                              if (!error) return self->WatchForEnd();
                              self->Close();
                              self->sender_.Abandon();
                              self->context_->Release(self);
                            });
  }

  // Drops the state of the request. Called before the next one, and when the connection ends.
  void EndRequest() {
    ++turn_;
    if (upload_ != nullptr && !responded_) upload_->OnCancel();
    upload_ = nullptr;
    context_->GiveRoom(std::exchange(room_, 0));
    if (std::exchange(has_place_, false)) context_->GivePlace();
    upload_parser_.reset();
    body_parser_.reset();
    request_ = {};
    responded_ = false;
  }

  // Ends the connection. Closing it with unread bytes would reset it, and the client would lose the
  // response. So incoming bytes are first read and discarded for up to a second.
  void End() {
    context_->SetIdle(this);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      beast::get_lowest_layer(stream_).expires_after(kLinger);
      stream_.async_shutdown([self = Shared()](error_code) {});
      return;
    }
    error_code error;
    beast::get_lowest_layer(stream_).socket().shutdown(tcp::socket::shutdown_send, error);
    if (error) return;
    beast::get_lowest_layer(stream_).expires_after(kLinger);
    Discard();
  }

  void Discard() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kDiscardBytes),
                            [self = Shared()](error_code error, size_t) {
                              if (!error) self->Discard();
                            });
  }

  const std::shared_ptr<HttpContext> context_;
  const std::shared_ptr<boost::asio::ssl::context> tls_;
  Stream stream_;
  HttpSender<Stream> sender_;
  std::string peer_;
  absl::StatusOr<std::string> certificate_ = "";
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> head_parser_;
  std::optional<http::request_parser<http::string_body>> body_parser_;
  std::optional<http::request_parser<http::buffer_body>> upload_parser_;
  HttpRequest request_;
  std::shared_ptr<std::atomic<bool>> client_gone_;  // Shared with request_.
  typename HttpSender<Stream>::Terms terms_;
  std::shared_ptr<HttpUpload> upload_;
  std::string piece_;
  size_t scanned_ = 0;  // Bytes of the head scanned so far.
  size_t room_ = 0;
  bool has_place_ = false;
  uint64_t turn_ = 0;  // Identifies the request, to drop late responses.
  bool responded_ = false;
  bool reads_head_ = false;  // A read of a head is pending.
  bool served_ = false;      // A response was sent.
  bool leaving_ = false;
};

}  // namespace

void StartHttpSession(tcp::socket socket, std::shared_ptr<HttpContext> context) {
  error_code ignored;
  // Pieces are written whole, so waiting for more bytes would only delay them.
  socket.set_option(tcp::no_delay(true), ignored);
  std::make_shared<HttpSession<beast::tcp_stream>>(beast::tcp_stream(std::move(socket)),
                                                   std::move(context))
      ->ReadHead();
}

void StartHttpsSession(tcp::socket socket, std::shared_ptr<HttpContext> context,
                       std::shared_ptr<boost::asio::ssl::context> tls) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  TlsStream stream(beast::tcp_stream(std::move(socket)), *tls);
  std::make_shared<HttpSession<TlsStream>>(std::move(stream), std::move(context), std::move(tls))
      ->Handshake();
}

}  // namespace genesis
