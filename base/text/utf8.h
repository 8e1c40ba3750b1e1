#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace genesis {

// Returns the length of the UTF-8 character that begins at `at` (inside `text`), or 0 if none does.
// Like protobuf, rejects overlong forms, surrogates and numbers past U+10FFFF.
size_t Utf8Length(absl::string_view text, size_t at);

// Returns whether `at` lies inside a character of valid UTF-8, so cutting there would break it.
bool IsInsideUtf8Character(absl::string_view text, size_t at);

// Returns whether all of `text` is UTF-8.
bool IsUtf8(absl::string_view text);

}  // namespace genesis
