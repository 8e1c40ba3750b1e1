#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/api/method_table.h"
#include "server/http/http_message.h"

namespace genesis {

// The method that a path and an HTTP verb select.
struct ApiTarget {
  const MethodRow* method = nullptr;
  std::map<std::string, std::string> fields;  // Fields from the path, with %-escapes decoded.
};

// The method of a request, or its refusal: 404 with the nearest path if no method has the path, 405
// with Allow if none has the verb.
struct ApiMatch {
  ApiTarget target;
  std::optional<HttpResponse> refusal;
};
ApiMatch FindTarget(const std::string& verb, const std::string& path);

// Content type of messages that are one line of JSON each.
constexpr char kJsonLines[] = "application/x-ndjson";

bool HasContentType(const HttpRequest& request, const std::string& type);

// Returns INVALID_ARGUMENT unless the content type is one of `accepted`, which a page of another
// site cannot send without a preflight request.
absl::Status CheckContentType(const HttpRequest& request, const std::vector<std::string>& accepted);

// Returns PERMISSION_DENIED for a request from a page of another site.
absl::Status CheckOrigin(const HttpRequest& request);

}  // namespace genesis
