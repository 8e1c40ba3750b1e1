#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text/json.h"
#include "base/text/scalars.h"
#include "base/text/text.h"

namespace genesis {

// A kind of setting value: which values are accepted, as text and as JSON Schema, and how they are
// parsed and printed.
template <typename T>
struct ValueKind {
  std::string range;  // E.g. "1 to 256".
  Json schema;        // E.g. {"type": "integer", "minimum": 1, "maximum": 256}.
  // Stores `text` in `value`. Returns "", or what is accepted if `text` is invalid.
  std::function<std::string(const std::string& text, T& value)> read;
  // Formats a value as the user would type it.
  std::function<std::string(const T& value)> print;
};

// A range of whole numbers, both ends inclusive.
struct NumberRange {
  int64_t least;
  int64_t most = INT64_MAX;  // INT64_MAX means no bound.
};

// The accepted words with their values.
template <typename T>
using Words = std::vector<std::pair<std::string, T>>;

ValueKind<bool> TrueOrFalse();
// A "host:port". CheckConflicts decides whether the address may be open to other hosts.
ValueKind<std::string> Address();
ValueKind<std::string> RequiredPath();
// Empty means a derived default, or none. `range` may be more specific than "a path".
ValueKind<std::string> OptionalPath(const std::string& range);
// Text of at most 1024 bytes that `fits` allows, as described by `accepted`. May be empty.
ValueKind<std::string> OptionalText(const char* accepted, bool (*fits)(absl::string_view));
// Permission bits of a socket in octal, such as 0600.
ValueKind<int> SocketMode();
// A number that `accepts` allows, as described by `range` and `bounds`, which are
// members of a JSON Schema.
ValueKind<double> RealNumber(const std::string& range, const Json& bounds, bool (*accepts)(double));

std::string RangeText(const NumberRange& range);  // E.g. "1 to 256", "a whole number >= 1".
Json RangeSchema(const NumberRange& range);
Json WordsSchema(const std::vector<std::string>& words);

template <typename T>
ValueKind<T> WholeNumber(const NumberRange& range) {
  return {RangeText(range), RangeSchema(range),
          [range](const std::string& text, T& value) -> std::string {
            const std::optional<int64_t> number = ParseInt64(text);
            if (!number.has_value() || *number < range.least || *number > range.most) {
              return RangeText(range);
            }
            value = static_cast<T>(*number);
            return "";
          },
          [](const T& value) { return absl::StrCat(value); }};
}

template <typename T>
ValueKind<T> OneOf(const Words<T>& words) {
  std::vector<std::string> names;
  for (const auto& [name, value] : words) names.push_back(name);
  return {WordsText(names), WordsSchema(names),
          [words, names](const std::string& text, T& value) -> std::string {
            for (const auto& [name, meaning] : words) {
              if (text != name) continue;
              value = meaning;
              return "";
            }
            return WordsText(names);
          },
          [words](const T& value) -> std::string {
            for (const auto& [name, meaning] : words) {
              if (value == meaning) return name;
            }
            return "";
          }};
}

// Words that are stored as they are.
ValueKind<std::string> OneOfWords(const std::vector<std::string>& words);

}  // namespace genesis
