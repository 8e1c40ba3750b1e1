#include "base/text/text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/text/field_error.h"
#include "base/text/utf8.h"

namespace genesis {
namespace {

TEST(TextTest, LeavesFitTextAlone) {
  const std::string fit = "größer als 3 µs — ✓ 𝄞 \"a\\b\"";
  EXPECT_EQ(OneLine(fit, 100), fit);
  EXPECT_EQ(BoundedText("two\n\tlines", 100), "two\n\tlines");
  EXPECT_EQ(OneLine("", 100), "");
}

TEST(TextTest, EscapesWhatForgesALine) {
  EXPECT_EQ(OneLine("a\nb\tc\r\x1b[2J", 100), "a\\nb\\tc\\r\\x1b[2J");
  EXPECT_EQ(BoundedText("a\r\nb", 100), "a\\r\nb");
  EXPECT_EQ(OneLine(std::string("a\0b", 3), 100), "a\\x00b");
  EXPECT_EQ(OneLine("del\x7f next\xc2\x85line\xe2\x80\xa8separator", 100),
            "del\\x7f next\\u0085line\\u2028separator");
  EXPECT_EQ(OneLine("\xe2\x80\xae"
                    "drow",
                    100),
            "\\u202edrow");
}

TEST(TextTest, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(OneLine("a\xff"
                    "b",
                    100),
            "a\\xffb");
  EXPECT_EQ(OneLine("cut \xc3", 100), "cut \\xc3");
  EXPECT_EQ(OneLine("\xed\xa0\x80", 100), "\\xed\\xa0\\x80");  // A surrogate.
  EXPECT_EQ(OneLine("\xc0\xaf", 100), "\\xc0\\xaf");           // An overlong '/'.
}

TEST(TextTest, KeepsHeadAndTailOfWhatIsTooLong) {
  const std::string text = "RuntimeError: " + std::string(1'000'000, 'x') + " at line 7";
  const std::string bounded = BoundedText(text, 200);
  EXPECT_LE(bounded.size(), 200U);
  EXPECT_TRUE(bounded.starts_with("RuntimeError: xxx")) << bounded;
  EXPECT_TRUE(bounded.ends_with("xxx at line 7")) << bounded;
  EXPECT_NE(bounded.find("...[1000024 bytes in all]..."), std::string::npos) << bounded;
}

TEST(TextTest, IsValidAndBoundedWhateverTheBytes) {
  std::mt19937 random(1);
  const std::string characters[] = {"a", "\n", "é", "✓", "𝄞", "\xff", "\xe2\x80", "\x01"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const size_t pieces = random() % 300;
    for (size_t i = 0; i < pieces; ++i) text += characters[random() % std::size(characters)];
    const size_t most = 64 + random() % 200;
    for (const std::string& fit : {OneLine(text, most), BoundedText(text, most)}) {
      ASSERT_LE(fit.size(), most);
      ASSERT_TRUE(IsUtf8(fit));
    }
    ASSERT_EQ(OneLine(text, most).find('\n'), std::string::npos);
  }
}

TEST(TextTest, QuotesAValueOfAnyBytes) {
  EXPECT_EQ(QuoteValue("a \"b\" \\ c\n"), R"("a \"b\" \\ c\n")");
  EXPECT_EQ(QuoteValue("bad\xff"), R"("bad\xff")");
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'x');
    while (text.size() < 200) text += "𝄞";
    EXPECT_TRUE(IsUtf8(QuoteValue(text)));
    EXPECT_EQ(QuoteValue(text).find("\\x"), std::string::npos) << QuoteValue(text);
  }
  EXPECT_LE(QuoteValue(std::string(1000, '\xff')).size(), 700U);
}

}  // namespace
}  // namespace genesis
