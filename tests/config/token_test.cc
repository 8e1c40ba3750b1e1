#include "config/settings/token.h"

#include <gtest/gtest.h>

#include <set>

namespace genesis {
namespace {

TEST(TokenTest, IsLongAndNeverTheSameTwice) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string token = NewToken();
    EXPECT_EQ(token.size(), 8u + 43u);
    EXPECT_TRUE(seen.insert(token).second);
  }
}

TEST(TokenTest, MatchesItsHashAndNoOther) {
  const std::string token = NewToken();
  const TokenHash hash = HashToken(token);
  EXPECT_TRUE(Matches(hash, token));
  EXPECT_FALSE(Matches(hash, token + "x"));
  EXPECT_FALSE(Matches(hash, token.substr(1)));
  EXPECT_FALSE(Matches(hash, ""));
  EXPECT_FALSE(Matches(HashToken(NewToken()), token));
}

TEST(TokenTest, HashesOfOneTokenDiffer) {
  const std::string token = NewToken();
  EXPECT_NE(FormatTokenHash(HashToken(token)), FormatTokenHash(HashToken(token)));
}

// The expected hash was computed with sha256sum from 16 zero bytes followed by "abc".
TEST(TokenTest, HashIsSha256OfSaltAndToken) {
  const auto hash = ParseTokenHash(
      "sha256:00000000000000000000000000000000:"
      "277e7ff6d232b9763f4a66e8d05d210da32dac9c6dbce1026ad4cc98acb5fefe");
  ASSERT_TRUE(hash.has_value());
  EXPECT_TRUE(Matches(*hash, "abc"));
}

TEST(TokenTest, HashIsReadBack) {
  const std::string token = NewToken();
  const auto hash = ParseTokenHash(FormatTokenHash(HashToken(token)));
  ASSERT_TRUE(hash.has_value());
  EXPECT_TRUE(Matches(*hash, token));
}

TEST(TokenTest, AnythingElseIsNoHash) {
  const std::string good = FormatTokenHash(HashToken("t"));
  for (const std::string& bad :
       {std::string(), std::string("sha256"), "md5" + good.substr(6), good + "0", good + ":0",
        good.substr(0, good.size() - 1), good.substr(0, good.size() - 1) + "g"}) {
    EXPECT_FALSE(ParseTokenHash(bad).has_value()) << bad;
  }
}

TEST(TokenTest, CallerNames) {
  for (const char* good : {"a", "ci-bot", "ann@example.org", "A.B_c"}) {
    EXPECT_TRUE(IsCallerName(good)) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("-a"), std::string("a b"), std::string("a:b"),
        std::string("\xC3\xA4"), std::string(64, 'a')}) {
    EXPECT_FALSE(IsCallerName(bad)) << bad;
  }
}

}  // namespace
}  // namespace genesis
