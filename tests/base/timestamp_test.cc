#include "base/timestamp.h"

#include <gtest/gtest.h>

namespace genesis {
namespace {

TEST(TimestampTest, KeepsEveryTimeOfTheYears1To9999) {
  for (const int64_t seconds :
       {int64_t{-62135596800}, int64_t{-9300000000}, int64_t{-1}, int64_t{0}, int64_t{1700000000},
        int64_t{9300000000}, int64_t{253402300799}}) {
    google::protobuf::Timestamp timestamp;
    timestamp.set_seconds(seconds);
    timestamp.set_nanos(123'456'789);
    const absl::Time time = FromTimestamp(timestamp);
    EXPECT_EQ(absl::ToUnixSeconds(time), seconds);
    EXPECT_EQ(ToTimestamp(time).seconds(), seconds);
    EXPECT_EQ(ToTimestamp(time).nanos(), 123'456'789);
  }
}

}  // namespace
}  // namespace genesis
