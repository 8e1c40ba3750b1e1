#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/data/batch_sampler.h"

namespace genesis {

struct PrioritizedOptions {
  int64_t batch_size = 1;  // At least 1.
  uint64_t seed = 0;
  double priority_exponent = 0.6;    // alpha, above 0 and at most 1.
  double importance_exponent = 0.4;  // beta, same range.
  bool endless = false;              // One epoch without an end, because the examples change.
};

// The examples of one batch, and the factors of their losses.
struct PrioritizedBatch {
  std::vector<int64_t> examples;
  std::vector<float> weights;  // Above 0, at most 1.
};

// Proportional prioritized replay (Schaul et al., 2016): example i is drawn, with replacement, with
// probability P(i) = p_i^alpha / sum of all, one from each of batch_size equal parts of the sum.
// Its weight is (N P(i))^-beta, divided by the largest weight that any example has.
//
// A batch is a pure function of (seed, position, priorities): for batch b of epoch e the k-th draw
// is u = (k + Uniform()) / batch_size of the sum, from splitmix64 stream
// e * batches_per_epoch + b of the seed (splitmix.h), found in a binary tree whose inner nodes are
// the sums of their two children. A run resumed with its priorities therefore draws the same
// batches.
//
// Owner: the run. Threads: one. Requires one priority per example, each finite and > 0, and an
// example for Draw.
class PrioritizedSampler {
 public:
  PrioritizedSampler(std::vector<float> priorities, const PrioritizedOptions& options);

  // Returns the batch at the current position, with the current priorities.
  PrioritizedBatch Draw() const;
  // Moves past the batch. Unless endless, an epoch has as many batches as without replacement.
  void Advance();
  int64_t batches_per_epoch() const;

  // Sets the priorities of examples; the last value of a repeated example counts. Ignores values
  // that are not finite. Raises the others to at least a minimum priority above 0.
  void Update(absl::Span<const int64_t> examples, absl::Span<const float> priorities);

  // The current priorities, one per example, for checkpoints.
  const std::vector<float>& priorities() const { return priorities_; }
  const SamplerPosition& position() const { return position_; }
  // Requires 0 <= position.batch < batches_per_epoch().
  void Seek(const SamplerPosition& position) { position_ = position; }
  // Requires one priority per example. Replaces those that are not finite or not above 0.
  void Restore(std::vector<float> priorities);
  // Forgets the oldest `dropped` examples, so that the next one becomes example 0, and appends
  // examples with the priorities `added`. A priority of 0 becomes the highest, to be drawn soon.
  void Slide(int64_t dropped, absl::Span<const float> added);

  double Probability(int64_t example) const;

 private:
  void SetLeaf(int64_t example);
  void MakeRoom();
  void SumLeaves();
  int64_t Find(double share) const;

  const PrioritizedOptions options_;
  SamplerPosition position_;
  std::vector<float> priorities_;
  // Node 1 is the root, n has the children 2n and 2n + 1, and the leaves begin at leaves_.
  size_t leaves_ = 1;
  std::vector<double> sum_;
  std::vector<double> least_;  // Minimum of the leaves below, for the largest weight.
};

}  // namespace genesis
