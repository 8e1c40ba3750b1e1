#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace genesis {

// Limits on JSON text, counted in one pass without allocation before protobuf parses it, because
// its run time is quadratic in the depth and its memory a large multiple of the number of values.
struct JsonLimits {
  size_t max_depth = 32;
  size_t max_values = 10'000;  // Commas, colons and opening brackets.
};

// Returns INVALID_ARGUMENT for text over a limit. Detects no other error.
absl::Status CheckJsonLimits(absl::string_view text, const JsonLimits& limits);

}  // namespace genesis
