#include "server/http/http_range.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/text/scalars.h"

namespace genesis {
namespace {

// Parses a byte position: digits only, no sign.
std::optional<int64_t> Position(const std::string& text) {
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit)) return std::nullopt;
  return ParseInt64(text);
}

}  // namespace

RangeAnswer ReadRange(const std::string& header, int64_t size) {
  const RangeAnswer whole{.partial = false, .range = ByteRange{0, size}};
  constexpr char kUnit[] = "bytes=";
  const size_t dash = header.find('-');
  if (!absl::StartsWithIgnoreCase(header, kUnit) || dash == std::string::npos) return whole;
  const std::string first = header.substr(sizeof(kUnit) - 1, dash - sizeof(kUnit) + 1);
  const std::string last = header.substr(dash + 1);
  const std::optional<int64_t> begin = Position(first);
  const std::optional<int64_t> end = Position(last);
  if (first.empty() && end) {
    // A suffix range: the last `*end` bytes.
    if (*end == 0 || size == 0) return {.partial = true, .range = std::nullopt};
    return {.partial = true, .range = ByteRange{std::max<int64_t>(0, size - *end), size}};
  }
  if (!begin || (!last.empty() && (!end || *end < *begin))) return whole;
  if (*begin >= size) return {.partial = true, .range = std::nullopt};
  return {.partial = true, .range = ByteRange{*begin, end ? std::min(*end, size - 1) + 1 : size}};
}

}  // namespace genesis
