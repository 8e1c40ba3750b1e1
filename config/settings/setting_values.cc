#include "config/settings/setting_values.h"

#include <charconv>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "config/settings/listen_address.h"

namespace genesis {
namespace {

constexpr size_t kMaxText = 1024;

std::string Same(const std::string& text) { return text; }

std::string ReadPath(const std::string& text, std::string& path) {
  if (absl::StrContains(text, '\0')) return "a path without a NUL byte";
  if (absl::StartsWith(text, "~")) return "a path written out; \"~\" is not expanded";
  path = text;
  return "";
}

}  // namespace

ValueKind<bool> TrueOrFalse() {
  return {"exactly true or false", Json{{"type", "boolean"}},
          [](const std::string& text, bool& value) -> std::string {
            const std::optional<bool> parsed = ParseBool(text);
            if (!parsed.has_value()) return "exactly true or false";
            value = *parsed;
            return "";
          },
          [](const bool& value) -> std::string { return value ? "true" : "false"; }};
}

ValueKind<std::string> Address() {
  return {"a host and a port; port 0 picks a free one", Json{{"type", "string"}},
          [](const std::string& text, std::string& address) -> std::string {
            if (!ParseHostPort(text).has_value()) {
              return "a host and a port, such as 127.0.0.1:50051 or [::1]:0";
            }
            address = text;
            return "";
          },
          &Same};
}

ValueKind<std::string> RequiredPath() {
  return {"a path", Json{{"type", "string"}},
          [](const std::string& text, std::string& path) -> std::string {
            return text.empty() ? "a path" : ReadPath(text, path);
          },
          &Same};
}

ValueKind<std::string> OptionalPath(const std::string& range) {
  return {range, Json{{"type", "string"}}, &ReadPath,
          [](const std::string& path) -> std::string { return path.empty() ? "(none)" : path; }};
}

ValueKind<std::string> OptionalText(const char* accepted, bool (*fits)(absl::string_view)) {
  return {accepted, Json{{"type", "string"}},
          [accepted, fits](const std::string& text, std::string& value) -> std::string {
            if (!text.empty() && (text.size() > kMaxText || !fits(text))) return accepted;
            value = text;
            return "";
          },
          [](const std::string& value) -> std::string { return value.empty() ? "(none)" : value; }};
}

ValueKind<int> SocketMode() {
  // YAML parses an unquoted octal mode as a number, so the schema allows integers.
  return {"0600 to 0666 in octal, such as 0660", Json{{"type", {"string", "integer"}}},
          [](const std::string& text, int& mode) -> std::string {
            constexpr int kOctal = 8;
            constexpr int kOwner = 0600;
            constexpr int kReadWrite = 0666;
            int value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value, kOctal);
            // Connecting to a socket needs write permission. Other bits are meaningless.
            const bool fine = error == std::errc() && stop == end && (value & kOwner) == kOwner &&
                              (value & ~kReadWrite) == 0;
            if (!fine) return "0600 to 0666 in octal, such as 0660";
            mode = value;
            return "";
          },
          [](const int& mode) { return absl::StrFormat("0%o", mode); }};
}

ValueKind<double> RealNumber(const std::string& range, const Json& bounds,
                             bool (*accepts)(double)) {
  Json schema = {{"type", "number"}};
  schema.update(bounds);
  return {range, schema,
          [range, accepts](const std::string& text, double& value) -> std::string {
            const std::optional<double> number = ParseDouble(text);
            if (!number.has_value() || !accepts(*number)) return range;
            value = *number;
            return "";
          },
          [](const double& value) { return FormatNumber(value); }};
}

ValueKind<std::string> OneOfWords(const std::vector<std::string>& words) {
  Words<std::string> same;
  for (const std::string& word : words) same.emplace_back(word, word);
  return OneOf(same);
}

std::string RangeText(const NumberRange& range) {
  if (range.most == INT64_MAX) return absl::StrCat("a whole number >= ", range.least);
  return absl::StrCat(range.least, " to ", range.most);
}

Json RangeSchema(const NumberRange& range) {
  Json schema = {{"type", "integer"}, {"minimum", range.least}};
  if (range.most != INT64_MAX) schema["maximum"] = range.most;
  return schema;
}

Json WordsSchema(const std::vector<std::string>& words) { return {{"enum", words}}; }

}  // namespace genesis
