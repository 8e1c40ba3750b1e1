#pragma once

#include <string>

#include "absl/time/time.h"

namespace genesis {

// "2026-01-31 12:00:00" in UTC, as SQLite's datetime() writes it, so that both compare rightly as
// text. The history has its times so, in the database and wherever it is shown.
std::string FormatSqlTime(absl::Time time);
// The Unix epoch for a text that is no such time.
absl::Time ParseSqlTime(const std::string& text);

}  // namespace genesis
