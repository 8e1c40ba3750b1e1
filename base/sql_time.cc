#include "base/sql_time.h"

namespace genesis {
namespace {

constexpr char kFormat[] = "%Y-%m-%d %H:%M:%E3S";
constexpr char kAnyFraction[] = "%Y-%m-%d %H:%M:%E*S";

}  // namespace

std::string FormatSqlTime(absl::Time time) {
  return absl::FormatTime(kFormat, time, absl::UTCTimeZone());
}

absl::Time ParseSqlTime(const std::string& text) {
  absl::Time time = absl::UnixEpoch();
  absl::ParseTime(kAnyFraction, text, absl::UTCTimeZone(), &time, nullptr);
  return time;
}

}  // namespace genesis
