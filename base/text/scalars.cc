#include "base/text/scalars.h"

#include <charconv>
#include <cmath>

namespace genesis {
namespace {

template <typename Number>
std::optional<Number> Parse(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// Some YAML readers take "010" as 8 and others as 10, so it is rejected.
bool HasLeadingZero(const std::string& text) {
  const size_t first = text.starts_with('-') ? 1 : 0;
  return text.size() > first + 1 && text[first] == '0';
}

}  // namespace

std::optional<int64_t> ParseInt64(const std::string& text) {
  if (HasLeadingZero(text)) return std::nullopt;
  return Parse<int64_t>(text);
}

std::optional<uint64_t> ParseUint64(const std::string& text) {
  if (HasLeadingZero(text)) return std::nullopt;
  return Parse<uint64_t>(text);
}

std::optional<double> ParseDouble(const std::string& text) {
  const std::optional<double> number = Parse<double>(text);
  // from_chars also accepts "nan" and "inf".
  if (!number.has_value() || !std::isfinite(*number)) return std::nullopt;
  return number;
}

std::optional<bool> ParseBool(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

}  // namespace genesis
