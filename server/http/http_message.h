#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

struct HttpRequest {
  std::string method;
  std::string path;  // As sent, without the query.
  std::string query;
  std::map<std::string, std::string> headers =
      {};                 // Names in lower case; repeated ones as one list.
  std::string body = {};  // Empty for an upload.
  std::optional<uint64_t> content_length = std::nullopt;  // Of the body; nullopt when chunked.
  std::string peer = {};                                  // "ipv4:127.0.0.1:40312".
  std::string certificate = {};         // Name of the client's certificate, verified; often "".
  absl::Status certificate_fault = {};  // Why one that was verified names nobody.

  // "" when there is none. `name` in lower case.
  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The body of an answer that is made piece by piece. Both methods are called on the server's thread
// and must not block.
class HttpBody {
 public:
  // The next piece, "" at the end, or a status: the connection is then broken off, so that the
  // client cannot take what it has for the whole.
  using Deliver = std::function<void(absl::StatusOr<std::string>)>;
  virtual ~HttpBody() = default;
  // Asked for when the piece before is written, so a slow client holds the maker back. `deliver` is
  // called once, on any thread, now or later.
  virtual void Next(Deliver deliver) = 0;
  // The client is gone or too slow, or the server stops: nothing more will be asked for.
  virtual void Cancel() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // Further ones.
  // Set: the body, instead of `body`. With a length it is sent as such; without, in chunks, and the
  // connection is closed after it.
  std::shared_ptr<HttpBody> stream = nullptr;
  std::optional<uint64_t> stream_length = std::nullopt;
};

// Answers a request: once, on any thread, now or later. Does nothing when the client is gone.
using Respond = std::function<void(HttpResponse)>;

// A body that is taken piece by piece instead of in memory. Called on the server's thread; must not
// block. Whoever is told of a piece either asks for more or responds, once, on any thread.
class HttpUpload {
 public:
  virtual ~HttpUpload() = default;
  // At most 64 KiB; `more` asks for the next.
  virtual void OnPiece(std::string piece, std::function<void()> more) = 0;
  // The body was whole; now respond.
  virtual void OnEnd() = 0;
  // The client is gone before its end, or the server stops.
  virtual void OnCancel() = 0;
};

// How a request with a body begins: with its taker, or with the answer that refuses it before the
// body is sent. Neither: the body is read whole, and the request handled.
struct HttpUploadStart {
  std::shared_ptr<HttpUpload> upload = nullptr;
  std::optional<HttpResponse> refusal = std::nullopt;
};

// The handlers of a server. Called on its thread; must not block.
struct HttpHandlers {
  std::function<void(const HttpRequest&, const Respond&)> handle;
  // May be empty. Asked when the head of a request has been read.
  std::function<HttpUploadStart(const HttpRequest&, const Respond&)> upload = nullptr;
  // May be empty. Whether a request is one of those that shall be answered however many others are
  // under way: it is answered at once, and shortly.
  std::function<bool(const HttpRequest&)> is_probe = nullptr;
  // May be empty. How a request is refused whose body is not wanted, or whose head could not be
  // read; then the request is empty.
  std::function<HttpResponse(const HttpRequest&, int status, const std::string& why)> refuse =
      nullptr;
};

// For pages that are made at once.
HttpHandlers Pages(std::function<HttpResponse(const HttpRequest&)> page);

}  // namespace genesis
