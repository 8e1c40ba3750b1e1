#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace genesis {

// Returns the median of step times: of two middle values, the larger. Requires at least one.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace genesis
