#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "google/protobuf/util/time_util.h"

namespace genesis {

// Returns the wait_seconds of a request; INVALID_ARGUMENT if it is out of range.
inline absl::StatusOr<absl::Duration> WaitOf(int seconds) {
  constexpr int kMax = 300;
  if (seconds >= 0 && seconds <= kMax) return absl::Seconds(seconds);
  return ToStatus({{"wait_seconds", absl::StrCat(seconds), absl::StrCat("0 to ", kMax)}});
}

// Returns the lease_seconds of a request, or the default for 0; INVALID_ARGUMENT if it is out of
// range.
inline absl::StatusOr<absl::Duration> LeaseOf(int seconds) {
  constexpr int kMax = 86400, kDefault = 600;
  if (seconds >= 0 && seconds <= kMax) return absl::Seconds(seconds == 0 ? kDefault : seconds);
  return ToStatus({{"lease_seconds", absl::StrCat(seconds),
                    absl::StrCat("1 to ", kMax, ", or 0 for ", kDefault)}});
}

// Returns the field `since` of a request; INVALID_ARGUMENT if it is out of range.
inline absl::StatusOr<absl::Time> SinceOf(const google::protobuf::Timestamp& since) {
  using google::protobuf::util::TimeUtil;
  if (since.seconds() >= TimeUtil::kTimestampMinSeconds &&
      since.seconds() <= TimeUtil::kTimestampMaxSeconds) {
    return FromTimestamp(since);
  }
  return ToStatus(
      {{"since.seconds", absl::StrCat(since.seconds()), "a time of the years 1 to 9999"}});
}

}  // namespace genesis
