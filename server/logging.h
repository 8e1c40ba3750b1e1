#pragma once

#include <string>

#include "absl/status/status.h"
#include "config/settings/settings.h"

namespace genesis {

// Sends spdlog's default logger to standard error and to the file (its folder is created). Each
// record is one line, of text or of JSON: control characters are escaped and long texts truncated.
// FAILED_PRECONDITION if the file cannot be opened.
absl::Status InitLogging(const LogSettings& settings);

// Sets the minimum level. Any thread may call it.
void SetLogLevel(const std::string& level);

// Reopens the log file by its path, after log rotation. FAILED_PRECONDITION if it cannot be opened;
// logging then continues in the old file. Call after InitLogging; any thread.
absl::Status ReopenLog();

}  // namespace genesis
