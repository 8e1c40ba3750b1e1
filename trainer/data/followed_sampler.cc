#include "trainer/data/followed_sampler.h"

#include <cstddef>

#include "trainer/data/splitmix.h"

namespace genesis {

std::vector<int64_t> FollowedSampler::Draw(int64_t size) const {
  SplitMix64 random(seed_, static_cast<uint64_t>(position_.batch));
  std::vector<int64_t> examples;
  examples.reserve(static_cast<size_t>(batch_size_));
  for (int64_t k = 0; k < batch_size_; ++k) {
    examples.push_back(newest_ ? size - 1 - k % size
                               : static_cast<int64_t>(random.Below(static_cast<uint64_t>(size))));
  }
  return examples;
}

}  // namespace genesis
