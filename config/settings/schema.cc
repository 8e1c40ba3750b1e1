#include "config/settings/schema.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/scalars.h"
#include "config/settings/settings_table.h"

namespace genesis {
namespace {

std::string Quoted(const std::string& text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

// "1 to 256".
std::optional<std::string> WholeNumber(const std::string& range) {
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(range, absl::MaxSplits(" to ", 1));
  if (!ParseInt64(ends.first).has_value() || !ParseInt64(ends.second).has_value()) {
    return std::nullopt;
  }
  return absl::StrCat("\"type\": \"integer\", \"minimum\": ", ends.first,
                      ", \"maximum\": ", ends.second);
}

// "debug, info, warning or error": single words only.
std::optional<std::string> OneOfWords(const std::string& range) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::StrReplaceAll(range, {{" or ", ", "}}), ", ");
  if (words.size() < 2) return std::nullopt;
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    if (word.find(' ') != std::string::npos) return std::nullopt;
    quoted.push_back(Quoted(word));
  }
  return absl::StrCat("\"enum\": [", absl::StrJoin(quoted, ", "), "]");
}

// The range of a row says in words what is accepted; this says it to programs. A test tries both
// ends of each against the row's own reader.
std::string Accepted(const SettingRow& row) {
  const std::string range = row.range;
  static const auto& known = *new std::map<std::string, std::string>{
      {"exactly true or false", "\"type\": \"boolean\""},
      {"a float > 0", "\"type\": \"number\", \"exclusiveMinimum\": 0"},
      {"a float > 1", "\"type\": \"number\", \"exclusiveMinimum\": 1"},
      {"a float above 0 and below 1",
       "\"type\": \"number\", \"exclusiveMinimum\": 0, \"exclusiveMaximum\": 1"},
      {"a whole number >= 1", "\"type\": \"integer\", \"minimum\": 1"}};
  if (const auto found = known.find(range); found != known.end()) return found->second;
  if (const auto number = WholeNumber(range)) return *number;
  if (const auto words = OneOfWords(range)) return *words;
  // An octal mode is a number to YAML when it is not quoted.
  if (std::string(row.unit) == "octal") return "\"type\": [\"string\", \"integer\"]";
  return "\"type\": \"string\"";
}

std::string Default(const SettingRow& row) {
  if (row.derived) return "";
  const std::string text = row.fallback;
  const bool bare = ParseBool(text).has_value() || ParseDouble(text).has_value();
  const bool octal = std::string(row.unit) == "octal";
  return absl::StrCat(", \"default\": ", bare && !octal ? text : Quoted(text));
}

std::string Property(const std::string& name, const SettingRow& row) {
  std::string help = row.help;
  if (row.unit[0] != '\0') absl::StrAppend(&help, " Unit: ", row.unit, ".");
  absl::StrAppend(&help, " Accepted: ", row.range, ". Environment: ", row.environment,
                  row.reloadable ? ". Changes at a reload." : ". Needs a restart.");
  return absl::StrCat(Quoted(name), ": {", Accepted(row), Default(row),
                      ", \"description\": ", Quoted(help), "}");
}

std::string Object(const std::vector<std::string>& properties, const std::string& indent) {
  return absl::StrCat("\"type\": \"object\",\n", indent, "\"additionalProperties\": false,\n",
                      indent, "\"properties\": {\n", indent, "  ",
                      absl::StrJoin(properties, absl::StrCat(",\n", indent, "  ")), "\n", indent,
                      "}");
}

}  // namespace

std::string SettingsSchema() {
  std::vector<std::string> top;
  // In the order of the table; "grpc.listen" stands in the group "grpc".
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const SettingRow& row : SettingsTable()) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(std::string(row.key), absl::MaxSplits('.', 1));
    if (parts.second.empty()) {
      top.push_back(Property(parts.first, row));
      continue;
    }
    auto group = groups.begin();
    while (group != groups.end() && group->first != parts.first) ++group;
    if (group == groups.end()) group = groups.insert(group, {parts.first, {}});
    group->second.push_back(Property(parts.second, row));
  }
  for (const auto& [name, properties] : groups) {
    top.push_back(
        absl::StrCat(Quoted(name), ": {\n      ", Object(properties, "      "), "\n    }"));
  }
  return absl::StrCat(
      "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
      "  \"title\": \"Settings file of genesisd\",\n  ",
      Object(top, "  "), "\n}\n");
}

}  // namespace genesis
