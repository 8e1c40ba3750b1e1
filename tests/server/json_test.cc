#include "server/rest/json.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>

namespace genesis {
namespace {

google::protobuf::Struct Parse(const std::string& text) {
  google::protobuf::Struct parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << text;
  return parsed;
}

TEST(Json, KeepsEveryKindOfValue) {
  const JsonObject inner = JsonObject().Set("x", int64_t{1});
  const auto parsed = Parse(JsonObject()
                                .Set("text", "a")
                                .Set("flag", true)
                                .Set("whole", int64_t{1000000000000})
                                .Set("part", 0.1)
                                .Set("inner", inner)
                                .Set("list", std::vector<JsonObject>{inner, inner})
                                .Set("words", std::vector<std::string>{"p", "q"})
                                .SetNull("none")
                                .Print());
  EXPECT_EQ(parsed.fields().at("text").string_value(), "a");
  EXPECT_TRUE(parsed.fields().at("flag").bool_value());
  EXPECT_EQ(parsed.fields().at("whole").number_value(), 1e12);
  EXPECT_EQ(parsed.fields().at("part").number_value(), 0.1);
  EXPECT_EQ(parsed.fields().at("inner").struct_value().fields().at("x").number_value(), 1);
  EXPECT_EQ(parsed.fields().at("list").list_value().values_size(), 2);
  EXPECT_EQ(parsed.fields().at("words").list_value().values(1).string_value(), "q");
  EXPECT_TRUE(parsed.fields().at("none").has_null_value());
}

TEST(Json, AnEmptyListStaysAList) {
  const auto parsed = Parse(JsonObject().Set("jobs", std::vector<JsonObject>{}).Print());
  EXPECT_TRUE(parsed.fields().at("jobs").has_list_value());
}

TEST(Json, EscapesStrings) {
  const std::string hard = "quote \" slash \\ line \n bell \a nul-free \x1f </script> \u00e9";
  EXPECT_EQ(Parse(JsonObject().Set("text", hard).Print()).fields().at("text").string_value(), hard);
}

TEST(Json, WhatIsNotANumberBecomesNull) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(
        Parse(JsonObject().Set("loss", value).Print()).fields().at("loss").has_null_value());
  }
}

TEST(Json, BytesThatAreNotUtf8DoNotSpoilThePage) {
  const auto parsed = Parse(JsonObject().Set("text", "a\xff\xfe b").Set("ok", true).Print());
  EXPECT_TRUE(parsed.fields().at("ok").bool_value());
  EXPECT_THAT(parsed.fields().at("text").string_value(), testing::StartsWith("a"));
}

}  // namespace
}  // namespace genesis
