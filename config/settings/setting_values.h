#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/json.h"
#include "base/text/scalars.h"
#include "base/text/text.h"

namespace genesis {

// A kind of value of a setting: what is accepted, as text and as JSON Schema, and how it is read
// and printed.
template <typename T>
struct ValueKind {
  std::string range;  // "1 to 256"
  Json schema;        // {"type": "integer", "minimum": 1, "maximum": 256}
  // Stores `text`. Returns "", or what is accepted if `text` is not.
  std::function<std::string(const std::string& text, T& value)> read;
  // Formats as the user would type it.
  std::function<std::string(const T& value)> print;
};

// Both ends are inclusive.
struct NumberRange {
  int64_t least;
  int64_t most = INT64_MAX;  // INT64_MAX means no bound.
};

// The accepted words, each with its value.
template <typename T>
using Words = std::vector<std::pair<std::string, T>>;

ValueKind<bool> TrueOrFalse();
// "host:port"; CheckConflicts decides whether the address may be open.
ValueKind<std::string> Address();
ValueKind<std::string> RequiredPath();
// Empty means a derived default, or none. `range` is more specific than "a path".
ValueKind<std::string> OptionalPath(const std::string& range);
// Permission bits of a socket, in octal, such as 0600.
ValueKind<int> SocketMode();
// A number that `accepts` allows; `range` and `bounds` (members of a JSON Schema) describe the
// same.
ValueKind<double> RealNumber(const std::string& range, const Json& bounds, bool (*accepts)(double));

std::string RangeText(const NumberRange& range);  // "1 to 256", "a whole number >= 1"
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

// Words that are stored as written.
ValueKind<std::string> OneOfWords(const std::vector<std::string>& words);

}  // namespace genesis
