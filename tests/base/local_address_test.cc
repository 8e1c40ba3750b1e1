#include "base/local_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "base/files/sha256.h"

namespace genesis {
namespace {

using testing::HasSubstr;

TEST(LocalAddressTest, IsTheOneFromWhichTheHostIsReached) {
  EXPECT_EQ(*LocalAddressTo("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(*LocalAddressTo("localhost"), *LocalAddressTo("localhost"));
}

TEST(LocalAddressTest, NamesAHostThatCannotBeReached) {
  const absl::StatusOr<std::string> unknown = LocalAddressTo("no-such-host.invalid");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(unknown.status().message(), HasSubstr("host no-such-host.invalid has no address: "));
}

TEST(LocalAddressTest, BelongsToAnInterface) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.1"), "");
  EXPECT_EQ(InterfaceOf("localhost"), "");
}

TEST(HmacTest, IsThatOfRfc4231) {
  EXPECT_EQ(absl::BytesToHexString(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace genesis
