#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace genesis {

// The end of each request must be unambiguous: if a proxy in front of the daemon sees it elsewhere,
// a client can smuggle requests past it (RFC 9112, 11.2). So ambiguous requests are refused, not
// repaired.

// Returns the length of the head at the front of `bytes`, including its empty line, or of its known
// bad beginning; nullopt if more bytes are needed. The first `scanned` bytes were scanned before.
std::optional<size_t> FindHeadEnd(absl::string_view bytes, size_t scanned);

// Returns "" or the fault of a head: lines that do not end in CRLF, folded or unnamed fields, a
// duplicate Host, Content-Length, Transfer-Encoding or other single field, a malformed length, a
// coding other than "chunked" alone, or both length and coding.
std::string HeadFault(absl::string_view head);

}  // namespace genesis
