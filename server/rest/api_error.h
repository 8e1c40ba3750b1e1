#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/http/http_message.h"

namespace genesis {

// Returns the HTTP status of a code, as in Google's APIs, such as 404 for NOT_FOUND and 429 for
// RESOURCE_EXHAUSTED.
int HttpStatusOf(absl::StatusCode code);

// Returns {"error": {"code": 404, "status": "NOT_FOUND", "message": ..., "details": [...]}} on one
// line, with a newline. The details are the status's payloads, such as google.rpc.BadRequest.
std::string ErrorJson(const absl::Status& status, int http_status);

// Returns ErrorJson with its headers and `http_status`, by default the HTTP status of the code.
HttpResponse ErrorResponse(const absl::Status& status,
                           std::optional<int> http_status = std::nullopt);

}  // namespace genesis
