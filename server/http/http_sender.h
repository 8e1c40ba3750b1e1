#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/stream_traits.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/http_context.h"

namespace genesis {

// A writer of responses to the stream of a session, one after another: short ones in one write,
// long and streamed ones piece by piece, each piece with its own deadline.
//
// Owner: a session, on the server's thread. `Stream` is a beast::tcp_stream or wraps one.
template <typename Stream>
class HttpSender {
 public:
  // Properties of a response that follow from its request.
  struct Terms {
    unsigned version = 11;
    bool keep_alive = false;
    bool head = false;  // HEAD request.
  };
  // Called with true if the connection can serve another request.
  using Done = std::function<void(bool usable)>;

  HttpSender(Stream* stream, HttpContext* context) : stream_(stream), context_(context) {}
  ~HttpSender() { CancelBody(); }
  HttpSender(const HttpSender&) = delete;
  HttpSender& operator=(const HttpSender&) = delete;

  // `owner` is the session. It stays alive during a write and, through the context, while a piece
  // is being produced.
  void Send(std::shared_ptr<HttpSessionBase> owner, HttpResponse callback, Terms terms, Done done) {
    terms_ = terms;
    done_ = std::move(done);
    if (callback.stream == nullptr && callback.body.size() > kPiece && !terms.head) {
      callback.stream_length = callback.body.size();
      callback.stream = std::make_shared<SlicedBody>(std::move(callback.body));
    }
    body_ = callback.stream;
    left_ = callback.stream_length;
    const bool endless = body_ != nullptr && !left_.has_value();
    if (endless) terms_.keep_alive = false;
    chunked_ = endless && terms.version >= 11;
    MakeHead(callback, endless);
    serializer_.emplace(response_);
    serializer_->split(terms.head);
    Arm();
    auto written = [this, owner](boost::system::error_code error, size_t) { OnHead(owner, error); };
    if (body_ != nullptr || terms.head) {
      boost::beast::http::async_write_header(*stream_, *serializer_, std::move(written));
    } else {
      boost::beast::http::async_write(*stream_, *serializer_, std::move(written));
    }
  }

  // Drops the response, because the client is gone.
  void Abandon() {
    CancelBody();
    done_ = nullptr;
  }

 private:
  static constexpr size_t kPiece = size_t{64} * 1024;

  // A complete body, served in slices so that each has its own deadline.
  class SlicedBody final : public HttpBody {
   public:
    explicit SlicedBody(std::string whole) : whole_(std::move(whole)) {}
    void Next(Deliver deliver) override {
      std::string piece = whole_.substr(at_, kPiece);
      at_ += piece.size();
      deliver(std::move(piece));
    }
    void Cancel() override {}

   private:
    const std::string whole_;
    size_t at_ = 0;
  };

  void Arm() {
    boost::beast::get_lowest_layer(*stream_).expires_after(
        std::chrono::seconds(context_->limits.write_timeout_s));
  }

  void MakeHead(const HttpResponse& callback, bool endless) {
    namespace http = boost::beast::http;
    response_ = {};
    response_.version(terms_.version);
    response_.result(static_cast<unsigned>(callback.status));
    response_.set(http::field::content_type, callback.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : callback.headers) response_.set(name, value);
    response_.keep_alive(terms_.keep_alive);
    if (chunked_) {
      response_.chunked(true);
    } else if (!endless && callback.status != 304) {
      response_.content_length(callback.stream_length.value_or(callback.body.size()));
    }
    if (body_ == nullptr && !terms_.head) response_.body() = callback.body;
  }

  void OnHead(const std::shared_ptr<HttpSessionBase>& owner, boost::system::error_code error) {
    if (error || body_ == nullptr || terms_.head) return Finish(!error);
    AskForPiece(owner);
  }

  void AskForPiece(const std::shared_ptr<HttpSessionBase>& owner) {
    context_->Hold(owner);
    std::weak_ptr<HttpSessionBase> weak = owner;
    body_->Next([this, weak, loop = context_->loop](absl::StatusOr<std::string> piece) {
      auto shared = std::make_shared<absl::StatusOr<std::string>>(std::move(piece));
      loop->Post([this, weak, shared] {
        // `this` is a member of the session, so it is valid only while the session lives.
        if (const auto session = weak.lock()) OnPiece(session, std::move(*shared));
      });
    });
  }

  void OnPiece(const std::shared_ptr<HttpSessionBase>& owner, absl::StatusOr<std::string> piece) {
    context_->Release(owner);
    if (body_ == nullptr) return;  // Cancelled in the meantime.
    if (!piece.ok()) return Finish(false);
    const bool end = piece->empty();
    // A body of any other length would corrupt the framing of the next response.
    if (left_.has_value() && (end ? *left_ > 0 : piece->size() > *left_)) return Finish(false);
    if (end && !chunked_) return Finish(true);
    piece_ = *std::move(piece);
    if (left_.has_value()) *left_ -= piece_.size();
    frame_ = chunked_ ? absl::StrCat(absl::Hex(piece_.size()), "\r\n") : "";
    Arm();
    const std::array<boost::asio::const_buffer, 3> buffers = {
        boost::asio::buffer(frame_), boost::asio::buffer(piece_),
        boost::asio::buffer("\r\n", chunked_ ? 2 : 0)};
    boost::asio::async_write(*stream_, buffers,
                             [this, owner, end](boost::system::error_code error, size_t) {
                               if (error || end) return Finish(!error);
                               if (body_ != nullptr) AskForPiece(owner);
                             });
  }

  void CancelBody() {
    if (const auto body = std::exchange(body_, nullptr)) body->Cancel();
  }

  void Finish(bool sound) {
    CancelBody();
    if (const Done done = std::exchange(done_, nullptr)) done(sound && terms_.keep_alive);
  }

  Stream* const stream_;
  HttpContext* const context_;
  Terms terms_;
  Done done_;
  boost::beast::http::response<boost::beast::http::string_body> response_;
  std::optional<boost::beast::http::response_serializer<boost::beast::http::string_body>>
      serializer_;
  std::shared_ptr<HttpBody> body_;
  bool chunked_ = false;
  std::optional<uint64_t> left_;  // Bytes left of a body of known length.
  std::string piece_;
  std::string frame_;
};

}  // namespace genesis
