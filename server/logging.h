#pragma once

#include <string>

#include "absl/status/status.h"

namespace genesis {

// Sends spdlog's default logger to standard error and to `file` (its folder is created), from
// `level` on: debug, info, warning or error. FAILED_PRECONDITION when the file cannot be opened.
absl::Status InitLogging(const std::string& file, const std::string& level);

}  // namespace genesis
