#include "trainer/data/batch_sampler.h"

#include <cstddef>
#include <numeric>
#include <utility>

namespace genesis {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

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
  uint64_t state = Mix(Mix(seed_) + static_cast<uint64_t>(position_.epoch));
  for (auto n = static_cast<uint64_t>(size_); n > 1; --n) {
    const uint64_t biased = (0 - n) % n;  // 2^64 mod n
    uint64_t random = 0;
    do {
      state += 0x9E3779B97F4A7C15u;
      random = Mix(state);
    } while (random < biased);
    std::swap(order_[n - 1], order_[random % n]);
  }
}

}  // namespace genesis
