#include "config/settings/schema.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/json.h"
#include "base/text/scalars.h"
#include "config/settings/settings_table.h"

namespace genesis {
namespace {

// Returns numbers and booleans as such, everything else as text.
Json DefaultOf(const SettingRow& row) {
  const bool bare = ParseBool(row.fallback).has_value() || ParseDouble(row.fallback).has_value();
  return bare && row.unit != "octal" ? Json::parse(row.fallback) : Json(row.fallback);
}

Json Property(const SettingRow& row) {
  std::string help = row.help;
  if (!row.unit.empty()) absl::StrAppend(&help, " Unit: ", row.unit, ".");
  absl::StrAppend(&help, " Accepted: ", row.range, ". Environment: ", row.environment,
                  row.reloadable ? ". Changes at a reload." : ". Needs a restart.");
  Json property = row.schema;
  if (!row.derived) property["default"] = DefaultOf(row);
  property["description"] = help;
  return property;
}

Json Group() { return {{"type", "object"}, {"additionalProperties", false}}; }

}  // namespace

std::string SettingsSchema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Settings file of genesisd"}};
  schema.update(Group());
  // The setting "grpc.listen" belongs to the group "grpc".
  for (const SettingRow& row : SettingsTable()) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(row.key, absl::MaxSplits('.', 1));
    Json& property = schema["properties"][parts.first];
    if (parts.second.empty()) {
      property = Property(row);
      continue;
    }
    if (property.is_null()) property = Group();
    property["properties"][parts.second] = Property(row);
  }
  return PrintJson(schema);
}

}  // namespace genesis
