#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace genesis {

// OneLine and BoundedText make untrusted text of a file, a module, a caller or another process fit
// for a message, a log, the store or a protobuf string. Both return valid UTF-8 of at most
// `max_bytes` bytes (at least 64) and leave text unchanged that already complies. Bytes that are
// not UTF-8, control characters (C0, DEL, C1), line and paragraph separators and the controls of
// bidirectional text are escaped: "\n", "\t", "\r", otherwise "\xff", "\u202e". Text that is too
// long keeps its head and its tail, with its total number of bytes between them.

// Returns the text on one line.
std::string OneLine(absl::string_view text, size_t max_bytes);

// Returns the text with its line feeds and tabs, as in tracebacks and program output.
std::string BoundedText(absl::string_view text, size_t max_bytes);

// Returns "viewer, submitter or admin". `words` has at least two.
std::string WordsText(const std::vector<std::string>& words);

// Bounds in bytes for untrusted text that is kept.
inline constexpr size_t kMaxMessageBytes = 4096;  // A failure's or incident's message, or a reason.
inline constexpr size_t kMaxLineBytes = 1024;     // One line of a log.
inline constexpr size_t kMaxNameBytes = 200;      // A name, a path or a key inside a message.

}  // namespace genesis
