#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace genesis {

// Protobuf's reader of JSON takes time that grows with the square of the depth, and memory that is
// a large multiple of the number of values; so both are counted first, in one pass that keeps
// nothing.
struct JsonLimits {
  size_t max_depth = 32;
  size_t max_values = 10'000;  // Commas, colons and opening brackets.
};

// INVALID_ARGUMENT for text that is over a limit. Finds no other fault.
absl::Status CheckJsonLimits(absl::string_view text, const JsonLimits& limits);

}  // namespace genesis
