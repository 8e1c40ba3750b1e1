#pragma once

#include <atomic>
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
      {};                 // Names in lower case. Repeated fields are joined.
  std::string body = {};  // Empty for an upload.
  std::optional<uint64_t> content_length = std::nullopt;  // Body length; nullopt if chunked.
  std::string peer = {};                                  // "ipv4:127.0.0.1:40312".
  std::string certificate = {};         // Name from the verified certificate, or "".
  absl::Status certificate_fault = {};  // Why a verified certificate names no caller.
  // Becomes true if the client closes the connection, or its half, before the response.
  std::shared_ptr<const std::atomic<bool>> client_gone = nullptr;

  // Returns the header's value; "" if there is none. `name` must be in lower case.
  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The body of a response, produced piece by piece. Both methods are called on the server's thread
// and must not block.
class HttpBody {
 public:
  // Receives the next piece, "" at the end, or an error. An error breaks the connection, so that
  // the client cannot mistake a part for the whole body.
  using Deliver = std::function<void(absl::StatusOr<std::string>)>;
  virtual ~HttpBody() = default;
  // Called when the previous piece has been written, so that a slow client throttles the producer.
  // `deliver` must be called once, on any thread, now or later.
  virtual void Next(Deliver deliver) = 0;
  // Called last: after the end, or if the client is gone or too slow, or the server stops.
  virtual void Cancel() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // Additional headers.
  // If set, this is the body instead of `body`. With stream_length it is sent as is; without, it is
  // sent in chunks and the connection is closed afterwards.
  std::shared_ptr<HttpBody> stream = nullptr;
  std::optional<uint64_t> stream_length = std::nullopt;
};

// Sends the response to a request. Must be called once, on any thread, now or later. Does nothing
// if the client is gone.
using Respond = std::function<void(HttpResponse)>;

// The receiver of a body, piece by piece. Called on the server's thread; must not block. After each
// call it must request more or respond; it responds once, on any thread.
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
// is read. If neither is set, the whole body is read and `handle` is called.
struct HttpUploadStart {
  std::shared_ptr<HttpUpload> upload = nullptr;
  std::optional<HttpResponse> refusal = std::nullopt;
};

// The handlers of a server. They are called on its thread and must not block.
struct HttpHandlers {
  std::function<void(const HttpRequest&, const Respond&)> handle;
  // Optional. Called when the head of a request has been read.
  std::function<HttpUploadStart(const HttpRequest&, const Respond&)> upload = nullptr;
  // Optional. Returns true for requests that must be served no matter how many others are in
  // progress. Their handler must respond immediately.
  std::function<bool(const HttpRequest&)> is_probe = nullptr;
  // Optional. Builds the response to a request that the server itself refuses, e.g. with 413 or
  // 503. The request is empty if it could not be read.
  std::function<HttpResponse(const HttpRequest&, int status, const std::string& why)> refuse =
      nullptr;
};

// Returns handlers for pages that are built without blocking.
HttpHandlers Pages(std::function<HttpResponse(const HttpRequest&)> page);

}  // namespace genesis
