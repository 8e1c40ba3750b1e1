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
  google::protobuf::Timestamp timestamp;
  const int64_t seconds = absl::ToUnixSeconds(time);
  timestamp.set_seconds(seconds);
  timestamp.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return timestamp;
}

absl::Time FromTimestamp(const google::protobuf::Timestamp& time) {
  // Nanoseconds since 1970 fit into 64 bits only until 2262.
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

double SecondsBetween(const google::protobuf::Timestamp& begin,
                      const google::protobuf::Timestamp& end) {
  return static_cast<double>(TimeUtil::DurationToNanoseconds(end - begin)) / 1e9;
}

}  // namespace genesis
