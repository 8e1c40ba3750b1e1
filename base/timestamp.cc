#include "base/timestamp.h"

#include <google/protobuf/util/time_util.h>

#include <chrono>

namespace genesis {

using google::protobuf::util::TimeUtil;

google::protobuf::Timestamp TimestampNow() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return TimeUtil::NanosecondsToTimestamp(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count());
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  return TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(time));
}

absl::Time FromTimestamp(const google::protobuf::Timestamp& time) {
  return absl::FromUnixNanos(TimeUtil::TimestampToNanoseconds(time));
}

double SecondsBetween(const google::protobuf::Timestamp& begin,
                      const google::protobuf::Timestamp& end) {
  return static_cast<double>(TimeUtil::DurationToNanoseconds(end - begin)) / 1e9;
}

}  // namespace genesis
