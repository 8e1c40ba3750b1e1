#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/distributed/rank_group.h"

namespace genesis {

// Throws RunFailure (FAILURE_CAUSE_DEVICE) on all ranks unless `weights` are bitwise the same on
// all of them. Names the ranks that differ from most, and the first weight that differs. Each rank
// calls it after the same `step`. Sync: waits for the device.
void RequireSameWeights(RankGroup& ranks, int64_t step,
                        const std::vector<std::pair<std::string, at::Tensor>>& weights);

}  // namespace genesis
