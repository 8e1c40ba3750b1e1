#include "base/text/nearest.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace genesis {
namespace {

// Returns the optimal string alignment distance. Only the last three rows of the table are kept.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string Nearest(const std::string& name, const std::vector<std::string>& candidates) {
  // Far longer than any key, so not a typing error and not worth the quadratic cost.
  constexpr size_t kLongest = 200;
  if (name.size() > kLongest) return "";
  const std::string lower = absl::AsciiStrToLower(name);
  std::string nearest;
  size_t nearest_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(lower, absl::AsciiStrToLower(candidate));
    const size_t limit = (std::max(name.size(), candidate.size()) + 2) / 3;
    if (distance <= limit && (nearest.empty() || distance < nearest_distance)) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace genesis
