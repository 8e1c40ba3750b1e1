#include "base/text/json.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>

namespace genesis {
namespace {

// Parses with a different library from the writer's.
google::protobuf::Struct Parse(const std::string& text) {
  google::protobuf::Struct parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << text;
  return parsed;
}

TEST(Json, KeepsEveryKindOfValue) {
  const Json inner = {{"x", int64_t{1}}};
  const auto parsed = Parse(PrintJson({{"text", "a"},
                                       {"flag", true},
                                       {"whole", int64_t{1000000000000}},
                                       {"part", 0.1},
                                       {"inner", inner},
                                       {"list", {inner, inner}},
                                       {"words", std::vector<std::string>{"p", "q"}},
                                       {"none", Json()}}));
  EXPECT_EQ(parsed.fields().at("text").string_value(), "a");
  EXPECT_TRUE(parsed.fields().at("flag").bool_value());
  EXPECT_EQ(parsed.fields().at("whole").number_value(), 1e12);
  EXPECT_EQ(parsed.fields().at("part").number_value(), 0.1);
  EXPECT_EQ(parsed.fields().at("inner").struct_value().fields().at("x").number_value(), 1);
  EXPECT_EQ(parsed.fields().at("list").list_value().values_size(), 2);
  EXPECT_EQ(parsed.fields().at("words").list_value().values(1).string_value(), "q");
  EXPECT_TRUE(parsed.fields().at("none").has_null_value());
}

TEST(Json, KeepsWholeNumbersAbove2To53) {
  EXPECT_EQ(PrintJson({{"bytes", (int64_t{1} << 53) + 1}}),
            "{\n  \"bytes\": 9007199254740993\n}\n");
}

TEST(Json, AnEmptyListStaysAList) {
  const auto parsed = Parse(PrintJson({{"jobs", Json::array()}}));
  EXPECT_TRUE(parsed.fields().at("jobs").has_list_value());
}

TEST(Json, EscapesStrings) {
  const std::string hard = "quote \" slash \\ line \n bell \a nul-free \x1f </script> \u00e9";
  EXPECT_EQ(Parse(PrintJson({{"text", hard}})).fields().at("text").string_value(), hard);
}

TEST(Json, WhatIsNotANumberBecomesNull) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(Parse(PrintJson({{"loss", value}})).fields().at("loss").has_null_value());
  }
}

TEST(Json, BytesThatAreNotUtf8DoNotSpoilThePage) {
  const auto parsed = Parse(PrintJson({{"text", "a\xff\xfe b"}, {"ok", true}}));
  EXPECT_TRUE(parsed.fields().at("ok").bool_value());
  EXPECT_THAT(parsed.fields().at("text").string_value(), testing::StartsWith("a"));
}

}  // namespace
}  // namespace genesis
