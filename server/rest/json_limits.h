#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace genesis {

// The run time of protobuf's JSON parser is quadratic in the depth, and its memory is a large
// multiple of the number of values. So both are counted first, in one pass without allocation.
struct JsonLimits {
  size_t max_depth = 32;
  size_t max_values = 10'000;  // Commas, colons and opening brackets.
};

// Returns INVALID_ARGUMENT for text over a limit. Detects no other error.
absl::Status CheckJsonLimits(absl::string_view text, const JsonLimits& limits);

}  // namespace genesis
