#pragma once

#include <google/protobuf/timestamp.pb.h>

namespace genesis {

// Now, to the nanosecond (protobuf's own TimeUtil::GetCurrentTime counts whole seconds).
google::protobuf::Timestamp TimestampNow();

// Seconds from `begin` to `end`.
double SecondsBetween(const google::protobuf::Timestamp& begin,
                      const google::protobuf::Timestamp& end);

}  // namespace genesis
