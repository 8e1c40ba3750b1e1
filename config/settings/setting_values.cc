#include "config/settings/setting_values.h"

#include <charconv>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/scalars.h"
#include "config/settings/listen_address.h"

namespace genesis {

std::string SetAddress(const std::string& text, std::string& address) {
  if (!ParseHostPort(text).has_value()) {
    return "a host and a port, such as 127.0.0.1:50051 or [::1]:0";
  }
  address = text;
  return "";
}

std::string SetPath(const std::string& text, bool may_be_empty, std::string& path) {
  if (text.empty() && !may_be_empty) return "a path";
  if (absl::StrContains(text, '\0')) return "a path without a NUL byte";
  if (absl::StartsWith(text, "~")) return "a path written out; \"~\" is not expanded";
  path = text;
  return "";
}

std::string SetInt(const std::string& text, int min, int max, int& number) {
  const std::optional<int64_t> value = ParseInt64(text);
  if (!value.has_value() || *value < min || *value > max) return absl::StrCat(min, " to ", max);
  number = static_cast<int>(*value);
  return "";
}

std::string SetBool(const std::string& text, bool& value) {
  const std::optional<bool> parsed = ParseBool(text);
  if (!parsed.has_value()) return "exactly true or false";
  value = *parsed;
  return "";
}

std::string SetWord(const std::string& text, const std::vector<std::string>& words,
                    std::string& word) {
  for (const std::string& known : words) {
    if (text != known) continue;
    word = text;
    return "";
  }
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back());
}

std::string SetMode(const std::string& text, int& mode) {
  constexpr int kOctal = 8;
  constexpr int kOwner = 0600;
  constexpr int kReadWrite = 0666;
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, kOctal);
  // A socket is connected to by those who may write it; more than that would mean nothing.
  const bool fine = error == std::errc() && stop == end && (value & kOwner) == kOwner &&
                    (value & ~kReadWrite) == 0;
  if (!fine) return "0600 to 0666 in octal, such as 0660";
  mode = value;
  return "";
}

}  // namespace genesis
