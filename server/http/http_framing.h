#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace genesis {

// Where one request ends and the next begins must be beyond doubt: a proxy before the daemon that
// sees the border elsewhere lets a client smuggle requests past it (RFC 9112, 11.2). So what can be
// read in two ways is refused, not mended.

// The length of the head at the front of `bytes`, its empty line included, or of its beginning as
// far as it is known to be bad; nullopt when more has to come. `scanned` bytes were looked at
// before.
std::optional<size_t> FindHeadEnd(absl::string_view bytes, size_t scanned);

// "" or what is wrong with a head: lines that do not end in CRLF, folded or unnamed fields, a
// second Host, Content-Length, Transfer-Encoding or another field that may be there once, a length
// that is no number, a coding other than "chunked" alone, or both of them.
std::string HeadFault(absl::string_view head);

}  // namespace genesis
