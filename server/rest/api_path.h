#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/api/method_table.h"
#include "server/http/http_message.h"

namespace genesis {

// The method that a path and a verb of HTTP name.
struct ApiTarget {
  const MethodRow* method = nullptr;
  std::map<std::string, std::string> fields;  // From the path, %-escapes undone.
};

// The method that a request asks for, or the answer that refuses it: 404 where no method has the
// path (with the nearest one), 405 with Allow where none has the verb.
struct ApiMatch {
  ApiTarget target;
  std::optional<HttpResponse> refusal;
};
ApiMatch FindTarget(const std::string& verb, const std::string& path);

// INVALID_ARGUMENT unless the body says that it is `type`, which a page of another site could not
// send without being asked for leave.
absl::Status CheckContentType(const HttpRequest& request, const std::string& type);

// PERMISSION_DENIED for a request that a page of another site makes.
absl::Status CheckOrigin(const HttpRequest& request);

}  // namespace genesis
