#pragma once

#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace genesis {

// Now, to the nanosecond (protobuf's own TimeUtil::GetCurrentTime counts whole seconds).
google::protobuf::Timestamp TimestampNow();

google::protobuf::Timestamp ToTimestamp(absl::Time time);
absl::Time FromTimestamp(const google::protobuf::Timestamp& time);

// Seconds from `begin` to `end`.
double SecondsBetween(const google::protobuf::Timestamp& begin,
                      const google::protobuf::Timestamp& end);

}  // namespace genesis
