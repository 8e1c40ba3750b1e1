#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace genesis {

// Returns the length of the UTF-8 character at `at`, or 0 if there is none. Overlong forms,
// surrogates and numbers past U+10FFFF are rejected, as protobuf does.
size_t Utf8Length(absl::string_view text, size_t at);

// Returns whether `at` lies inside a character of valid UTF-8, so cutting there would break it.
bool IsInsideUtf8Character(absl::string_view text, size_t at);

// Returns whether all of `text` is UTF-8.
bool IsUtf8(absl::string_view text);

}  // namespace genesis
