#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace genesis {

// Foreign text: words of a file, a module, a caller or another process, on their way into a
// message, a log, the store or a protobuf string. Both functions return valid UTF-8 of at most
// `max_bytes` bytes (at least 64) and touch no text that is fit already. Bytes that are no UTF-8,
// control characters (C0, DEL, C1), line and paragraph separators and the controls of bidirectional
// text are escaped:
// "\n", "\t", "\r", else "\xff", "\u202e". Text that is too long keeps its head and its tail, with
// the number of bytes left out between them.

// On one line.
std::string OneLine(absl::string_view text, size_t max_bytes);

// Keeps line feeds and tabs: tracebacks, a program's output.
std::string BoundedText(absl::string_view text, size_t max_bytes);

// "viewer, submitter or admin". `words` has at least two.
std::string WordsText(const std::vector<std::string>& words);

// Bounds for what is kept of foreign text. Bytes.
inline constexpr size_t kMaxMessageBytes = 4096;  // A failure's message, an incident's, a reason.
inline constexpr size_t kMaxLineBytes = 1024;     // One line of a log.
inline constexpr size_t kMaxNameBytes = 200;      // A name, a path or a key inside a message.

}  // namespace genesis
