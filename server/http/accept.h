#pragma once

#include <optional>
#include <string>

namespace genesis {

// The encodings that a client accepts, from its headers (RFC 9110, 12.5). A malformed header
// requests nothing.

// Returns true if `accept` names a served version of OpenMetrics and does not prefer plain text.
bool PrefersOpenMetrics(const std::string& accept);

// Returns true if `accept_encoding` names gzip or "*".
bool AcceptsGzip(const std::string& accept_encoding);

// Compresses `body`; nullopt if zlib has no memory.
std::optional<std::string> Gzip(const std::string& body);

}  // namespace genesis
