#pragma once

#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace genesis {

// Returns the current time to the nanosecond (protobuf's TimeUtil::GetCurrentTime counts seconds).
google::protobuf::Timestamp TimestampNow();

google::protobuf::Timestamp ToTimestamp(absl::Time time);
absl::Time FromTimestamp(const google::protobuf::Timestamp& time);

// Returns the seconds from `begin` to `end`.
double SecondsBetween(const google::protobuf::Timestamp& begin,
                      const google::protobuf::Timestamp& end);

}  // namespace genesis
