#pragma once

#include <optional>
#include <string>

namespace genesis {

// The encodings a client takes, from its headers (RFC 9110, 12.5); one that cannot be read asks
// for nothing.

// `accept` names OpenMetrics of a version that is served, and wants plain text no more than that.
bool PrefersOpenMetrics(const std::string& accept);

// `accept_encoding` names gzip, or everything.
bool AcceptsGzip(const std::string& accept_encoding);

// nullopt when zlib has no memory.
std::optional<std::string> Gzip(const std::string& body);

}  // namespace genesis
