#pragma once

#include "absl/strings/string_view.h"

namespace genesis {

// Returns whether a text may be the key of a label, or the name of a reported metric.
bool IsKeyName(absl::string_view name);

// Description of the accepted names, for error messages.
inline constexpr char kKeyNames[] = "1 to 63 letters, digits, '.', '_', '/' and '-'";

}  // namespace genesis
