#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace genesis {

// Length of the UTF-8 character at `at`, or 0 when the bytes there are none. Overlong forms,
// surrogates and numbers past U+10FFFF are no characters: protobuf refuses them too.
size_t Utf8Length(absl::string_view text, size_t at);

// Whether `at` lies between the bytes of one character of valid UTF-8: text cut there is not valid.
bool IsInsideUtf8Character(absl::string_view text, size_t at);

// Whether all of `text` is.
bool IsUtf8(absl::string_view text);

}  // namespace genesis
