#pragma once

#include <optional>

#include "server/http/http_message.h"

namespace genesis {

// Returns the dashboard's response to GET or HEAD: its page at `/` for a client that accepts HTML,
// and its files below /dashboard/. nullopt for any other request. Thread-safe.
//
// Browsers revalidate the files by their ETag, so that a page never mixes files of two versions.
// The content security policy allows only files and requests of this server, and no inline script.
std::optional<HttpResponse> DashboardResponse(const HttpRequest& request);

}  // namespace genesis
