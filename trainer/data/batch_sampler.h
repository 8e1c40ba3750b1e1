#pragma once

#include <cstdint>
#include <vector>

namespace genesis {

// The position of a run in the data, kept in checkpoints.
struct SamplerPosition {
  int64_t epoch = 0;
  int64_t batch = 0;  // Batches of this epoch already taken.
};

// The order of the examples: a new permutation of 0..size-1 per epoch, cut into batches. The tail
// of an epoch that is shorter than a batch is dropped. A pure function of (size, batch_size, seed,
// position), so a resumed run sees the same batches, and Python can reproduce it:
//
//   M = 2**64 - 1
//   def mix(x):
//       x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & M
//       x = (x ^ (x >> 27)) * 0x94D049BB133111EB & M
//       return x ^ (x >> 31)
//   def permutation(size, seed, epoch):
//       state, order = mix(mix(seed) + epoch & M), list(range(size))
//       for n in range(size, 1, -1):          # Fisher-Yates, from the end
//           while True:
//               state = state + 0x9E3779B97F4A7C15 & M   # splitmix64
//               r = mix(state)
//               if r >= 2**64 % n: break      # else some remainders are likelier
//           order[n - 1], order[r % n] = order[r % n], order[n - 1]
//       return order
//
// Owner: the run. Threads: one. Requires 1 <= batch_size <= size.
class BatchSampler {
 public:
  BatchSampler(int64_t size, int64_t batch_size, uint64_t seed);

  // The order of the examples in the current epoch.
  const std::vector<int64_t>& order() const { return order_; }
  // Index in order() of the next batch, which has batch_size examples.
  int64_t offset() const { return position_.batch * batch_size_; }
  // Moves past the current batch; after the last batch of an epoch, to the next epoch.
  void Advance();

  int64_t batches_per_epoch() const { return size_ / batch_size_; }
  int64_t batch_size() const { return batch_size_; }
  const SamplerPosition& position() const { return position_; }
  // Requires 0 <= position.batch < batches_per_epoch().
  void Seek(const SamplerPosition& position);

 private:
  void Shuffle();

  const int64_t size_;
  const int64_t batch_size_;
  const uint64_t seed_;
  SamplerPosition position_;
  std::vector<int64_t> order_;
};

}  // namespace genesis
