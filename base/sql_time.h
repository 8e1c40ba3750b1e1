#pragma once

#include <string>

#include "absl/time/time.h"

namespace genesis {

// Returns "2026-01-31 12:00:00.000" in UTC: SQLite's datetime() with milliseconds, so that the two
// compare correctly as text. The metrics history stores and shows its times in this format.
std::string FormatSqlTime(absl::Time time);
// Parses such a time, with or without a fraction. Returns the Unix epoch if `text` is none.
absl::Time ParseSqlTime(const std::string& text);

}  // namespace genesis
