#include "trainer/data/batch_sampler.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "trainer/data/splitmix.h"

namespace genesis {

BatchSampler::BatchSampler(int64_t size, int64_t batch_size, uint64_t seed)
    : size_(size), batch_size_(batch_size), seed_(seed) {
  Shuffle();
}

void BatchSampler::Advance() {
  ++position_.batch;
  if (position_.batch < batches_per_epoch()) return;
  position_ = {.epoch = position_.epoch + 1, .batch = 0};
  Shuffle();
}

void BatchSampler::Seek(const SamplerPosition& position) {
  position_ = position;
  Shuffle();
}

void BatchSampler::Shuffle() {
  order_.resize(static_cast<size_t>(size_));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  SplitMix64 random(seed_, static_cast<uint64_t>(position_.epoch));
  for (auto n = static_cast<uint64_t>(size_); n > 1; --n) {
    std::swap(order_[n - 1], order_[random.Below(n)]);
  }
}

}  // namespace genesis
