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
  std::optional<uint64_t> content_length = std::nullopt;  // Length of the body; nullopt if chunked.
  std::string peer = {};                                  // "ipv4:127.0.0.1:40312".
  std::string certificate = {};         // Name from the client's verified certificate, or "".
  absl::Status certificate_fault = {};  // Reason why a verified certificate names no caller.

  // Returns "" if there is none. `name` in lower case.
  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The body of a response produced piece by piece. Both methods are called on the server's thread
// and must not block.
class HttpBody {
 public:
  // Receives the next piece, "" at the end, or a status. A status breaks the connection, so that
  // the client cannot mistake its part for the whole.
  using Deliver = std::function<void(absl::StatusOr<std::string>)>;
  virtual ~HttpBody() = default;
  // Called when the previous piece has been written, so a slow client throttles the producer.
  // `deliver` must be called once, on any thread, now or later.
  virtual void Next(Deliver deliver) = 0;
  // Called if the client is gone or too slow, or the server stops. Next is not called again.
  virtual void Cancel() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // Additional headers.
  // If set, the body, instead of `body`. With a length it is sent as is; without one it is sent in
  // chunks and the connection is closed after it.
  std::shared_ptr<HttpBody> stream = nullptr;
  std::optional<uint64_t> stream_length = std::nullopt;
};

// Sends the response to a request. Called once, on any thread, now or later. Does nothing if the
// client is gone.
using Respond = std::function<void(HttpResponse)>;

// Receives a body piece by piece instead of in memory. Called on the server's thread; must not
// block. After each call it must either request more or respond, once, on any thread.
class HttpUpload {
 public:
  virtual ~HttpUpload() = default;
  // Receives at most 64 KiB; `more` requests the next piece.
  virtual void OnPiece(std::string piece, std::function<void()> more) = 0;
  // Called when the body is complete. Must respond.
  virtual void OnEnd() = 0;
  // Called if the client is gone before the end, or the server stops.
  virtual void OnCancel() = 0;
};

// The start of a request with a body: its receiver, or the response that refuses it before the body
// is sent. If neither is set, the body is read whole and the request is handled.
struct HttpUploadStart {
  std::shared_ptr<HttpUpload> upload = nullptr;
  std::optional<HttpResponse> refusal = std::nullopt;
};

// The handlers of a server. Called on its thread; must not block.
struct HttpHandlers {
  std::function<void(const HttpRequest&, const Respond&)> handle;
  // Optional. Called when the head of a request has been read.
  std::function<HttpUploadStart(const HttpRequest&, const Respond&)> upload = nullptr;
  // Optional. Returns true for requests that must be served however many others are in progress;
  // they are served immediately and quickly.
  std::function<bool(const HttpRequest&)> is_probe = nullptr;
  // Optional. Builds the response to a request whose body is refused, or whose head could not be
  // read. In the latter case the request is empty.
  std::function<HttpResponse(const HttpRequest&, int status, const std::string& why)> refuse =
      nullptr;
};

// Handlers for pages that are built without blocking.
HttpHandlers Pages(std::function<HttpResponse(const HttpRequest&)> page);

}  // namespace genesis
