#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace genesis {

// Distributes items of these sizes over ranks, the largest first to the least loaded rank, as
// torch.distributed.optim.ZeroRedundancyOptimizer does. Returns the rank of each item;
// deterministic, so all ranks agree.
inline std::vector<int> ShareBySize(const std::vector<int64_t>& sizes, int ranks) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<int> owners(sizes.size());
  for (const size_t each : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += sizes[each];
    owners[each] = static_cast<int>(least - load.begin());
  }
  return owners;
}

}  // namespace genesis
