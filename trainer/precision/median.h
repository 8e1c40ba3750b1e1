#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace genesis {

// The middle one of some step times, the upper of two. Requires at least one.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace genesis
