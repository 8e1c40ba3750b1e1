#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace genesis {

// Finds the end of each request, which must be unambiguous. If a proxy in front of the daemon sees
// it elsewhere, a client can smuggle requests past the proxy (RFC 9112, 11.2). So ambiguous
// requests are refused, not repaired.

// Returns the length of the head at the front of `bytes`, including its empty line, or of a part
// already known to be bad; nullopt if more bytes are needed. `scanned` bytes were scanned before.
std::optional<size_t> FindHeadEnd(absl::string_view bytes, size_t scanned);

// Returns "" or the error of a head: lines that do not end in CRLF, folded or unnamed fields, a
// duplicate of Host, Content-Length, Transfer-Encoding or another single field, a malformed length,
// a coding other than just "chunked", both length and coding, or HTTP/1.1 without Host.
std::string HeadFault(absl::string_view head);

}  // namespace genesis
