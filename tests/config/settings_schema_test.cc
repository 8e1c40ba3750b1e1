// Tests that the JSON Schema agrees with the parser of each setting.
#include "config/settings/schema.h"

#include "absl/strings/str_cat.h"
#include "base/text/yaml_document.h"
#include "config/settings/settings_table.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

Struct Parsed() {
  Struct schema;
  const auto status = google::protobuf::util::JsonStringToMessage(SettingsSchema(), &schema);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return schema;
}

// Returns the schema of a setting such as "grpc.listen".
Struct SchemaOf(const Struct& schema, const std::string& key) {
  const Struct& properties = schema.fields().at("properties").struct_value();
  const size_t dot = key.find('.');
  const Struct& top = properties.fields().at(key.substr(0, dot)).struct_value();
  return dot == std::string::npos ? top : SchemaOf(top, key.substr(dot + 1));
}

bool Accepts(const SettingRow& row, const std::string& text) {
  Settings settings;
  return row.set(text, settings).empty();
}

std::string WholeText(double number) { return absl::StrCat(static_cast<int64_t>(number)); }

TEST(SettingsSchemaTest, HasEverySettingAndItsBoundsAreThoseOfItsReader) {
  const Struct schema = Parsed();
  int numbers = 0;
  int words = 0;
  for (const SettingRow& row : SettingsTable()) {
    const auto fields = SchemaOf(schema, row.key).fields();
    if (const auto minimum = fields.find("minimum"); minimum != fields.end()) {
      ++numbers;
      const double least = minimum->second.number_value();
      EXPECT_TRUE(Accepts(row, WholeText(least))) << row.key;
      EXPECT_FALSE(Accepts(row, WholeText(least - 1))) << row.key;
      if (const auto maximum = fields.find("maximum"); maximum != fields.end()) {
        EXPECT_TRUE(Accepts(row, WholeText(maximum->second.number_value()))) << row.key;
        EXPECT_FALSE(Accepts(row, WholeText(maximum->second.number_value() + 1))) << row.key;
      }
    } else if (const auto known = fields.find("enum"); known != fields.end()) {
      ++words;
      for (const Value& word : known->second.list_value().values()) {
        EXPECT_TRUE(Accepts(row, word.string_value())) << row.key << " " << word.string_value();
      }
      EXPECT_FALSE(Accepts(row, "neither")) << row.key;
    } else if (fields.at("type").string_value() == "boolean") {
      EXPECT_TRUE(Accepts(row, "true") && Accepts(row, "false")) << row.key;
      EXPECT_FALSE(Accepts(row, "1")) << row.key;
    } else if (fields.at("type").string_value() == "number") {
      EXPECT_FALSE(Accepts(row, WholeText(fields.at("exclusiveMinimum").number_value())))
          << row.key;
    }
  }
  EXPECT_GE(numbers, 5);
  EXPECT_GE(words, 4);
}

TEST(SettingsSchemaTest, PageIsCurrent) {
  const absl::StatusOr<std::string> page = ReadTextFile(GENESIS_DOCS_DIR "/genesisd.schema.json");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(*page, SettingsSchema())
      << "write it anew: cmake --build --preset release --target reference";
}

}  // namespace
}  // namespace genesis
