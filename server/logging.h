#pragma once

#include <string>

#include "absl/status/status.h"

namespace genesis {

// Sends spdlog's default logger to standard error and to `file` (its folder is created), from
// `level` on: debug, info, warning or error. Each record is one line: what is no text of one line
// is escaped, what is long is cut. FAILED_PRECONDITION when the file cannot be opened.
absl::Status InitLogging(const std::string& file, const std::string& level);

// From `level` on. Any thread.
void SetLogLevel(const std::string& level);

// Opens the log file by its name again, for one that was moved away. FAILED_PRECONDITION when it
// cannot be opened; the log then goes on into the old one. After InitLogging; any thread.
absl::Status ReopenLog();

}  // namespace genesis
