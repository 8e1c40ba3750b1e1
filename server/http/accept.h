#pragma once

#include <optional>
#include <string>

namespace genesis {

// The encodings that a client accepts according to its headers (RFC 9110, 12.5). A
// malformed header counts as absent.

// Returns true if `accept` names a supported version of OpenMetrics and does not prefer plain text.
bool PrefersOpenMetrics(const std::string& accept);

// Returns true if `accept` names HTML and does not prefer plain text, as browsers do.
bool AcceptsHtml(const std::string& accept);

// Returns true if `accept_encoding` names gzip or "*", with a quality above 0.
bool AcceptsGzip(const std::string& accept_encoding);

// Returns `body` compressed with gzip; nullopt if zlib runs out of memory.
std::optional<std::string> Gzip(const std::string& body);

}  // namespace genesis
