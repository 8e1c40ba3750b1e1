#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/batch_sampler.h"

namespace genesis {

// The order of the examples of a followed replay buffer, whose number changes from batch to batch.
// A batch is a pure function of (size, batch_size, seed, position), so a resumed run draws the same
// batches from the same examples: the k-th of batch b is Below(size) of splitmix64 stream b of the
// seed (splitmix.h), or, if `newest`, the k-th newest.
//
// Owner: a BatchSource. Threads: one.
class FollowedSampler {
 public:
  FollowedSampler(int64_t batch_size, uint64_t seed, bool newest)
      : batch_size_(batch_size), seed_(seed), newest_(newest) {}

  // Draws a batch of `size` examples with replacement; the last is the newest. Requires size >= 1.
  std::vector<int64_t> Draw(int64_t size) const;
  void Advance() { ++position_.batch; }

  // All batches are in epoch 0.
  const SamplerPosition& position() const { return position_; }
  void Seek(const SamplerPosition& position) { position_ = position; }

 private:
  const int64_t batch_size_;
  const uint64_t seed_;
  const bool newest_;
  SamplerPosition position_;
};

}  // namespace genesis
