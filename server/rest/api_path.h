#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/api/method_table.h"
#include "server/http/http_message.h"

namespace genesis {

// The method selected by a path and an HTTP verb.
struct ApiTarget {
  const MethodRow* method = nullptr;
  std::map<std::string, std::string> fields;  // Fields from the path, with %-escapes decoded.
};

// The method of a request, or the response that refuses it: 404 if no method has the path (with the
// nearest one), 405 with Allow if none has the verb.
struct ApiMatch {
  ApiTarget target;
  std::optional<HttpResponse> refusal;
};
ApiMatch FindTarget(const std::string& verb, const std::string& path);

// INVALID_ARGUMENT unless the content type is `type`, which a page of another site cannot send
// without a preflight request.
absl::Status CheckContentType(const HttpRequest& request, const std::string& type);

// PERMISSION_DENIED for a request from a page of another site.
absl::Status CheckOrigin(const HttpRequest& request);

}  // namespace genesis
