#include "trainer/data/prioritized_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trainer/data/splitmix.h"

namespace genesis {
namespace {

// The minimum priority, because an example with a loss of 0 must still be drawn.
constexpr float kLowest = 1e-6f;
// The priority that replaces a NaN or an Inf in restored priorities.
constexpr float kHighest = 1e12f;

// Returns the minimum priority, scaled down if all `priorities` are below 1 (small loss units).
float LowestBeside(absl::Span<const float> priorities) {
  float largest = 0;
  for (const float each : priorities) {
    if (std::isfinite(each)) largest = std::max(largest, each);
  }
  const float lowest = kLowest * std::min(1.0f, largest);
  return lowest > 0 ? lowest : kLowest;
}

}  // namespace

PrioritizedSampler::PrioritizedSampler(std::vector<float> priorities,
                                       const PrioritizedOptions& options)
    : options_(options) {
  Restore(std::move(priorities));
}

int64_t PrioritizedSampler::batches_per_epoch() const {
  if (options_.endless) return std::numeric_limits<int64_t>::max();
  const auto size = static_cast<int64_t>(priorities_.size());
  return std::max<int64_t>(1, size / options_.batch_size);
}

void PrioritizedSampler::Restore(std::vector<float> priorities) {
  priorities_ = std::move(priorities);
  const float lowest = LowestBeside(priorities_);
  for (float& priority : priorities_) {
    if (!std::isfinite(priority)) priority = kHighest;
    if (priority <= 0) priority = lowest;
  }
  MakeRoom();
  for (size_t i = 0; i < priorities_.size(); ++i) SetLeaf(static_cast<int64_t>(i));
  SumLeaves();
}

void PrioritizedSampler::Slide(int64_t dropped, absl::Span<const float> added) {
  const size_t kept = priorities_.size() - static_cast<size_t>(dropped);
  priorities_.erase(priorities_.begin(), priorities_.begin() + dropped);
  priorities_.insert(priorities_.end(), added.begin(), added.end());
  const auto highest = std::max_element(priorities_.begin(), priorities_.end());
  const float first = highest == priorities_.end() || *highest <= 0 ? 1.0f : *highest;
  std::replace(priorities_.begin() + static_cast<int64_t>(kept), priorities_.end(), 0.0f, first);
  // Keep the leaves of the kept examples, which saves computing their powers again.
  const auto begin = sum_.begin() + static_cast<int64_t>(leaves_) + dropped;
  const std::vector<double> weights(begin, begin + static_cast<int64_t>(kept));
  MakeRoom();
  std::copy(weights.begin(), weights.end(), sum_.begin() + static_cast<int64_t>(leaves_));
  std::copy(weights.begin(), weights.end(), least_.begin() + static_cast<int64_t>(leaves_));
  for (size_t i = kept; i < priorities_.size(); ++i) SetLeaf(static_cast<int64_t>(i));
  SumLeaves();
}

// Resets the tree to empty leaves, at least one per example.
void PrioritizedSampler::MakeRoom() {
  while (leaves_ < priorities_.size()) leaves_ *= 2;
  sum_.assign(2 * leaves_, 0.0);
  least_.assign(2 * leaves_, std::numeric_limits<double>::infinity());
}

void PrioritizedSampler::SumLeaves() {
  for (size_t node = leaves_ - 1; node >= 1; --node) {
    sum_[node] = sum_[2 * node] + sum_[2 * node + 1];
    least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
  }
}

void PrioritizedSampler::SetLeaf(int64_t example) {
  const auto at = static_cast<size_t>(example);
  const double weight = std::pow(double{priorities_[at]}, options_.priority_exponent);
  sum_[leaves_ + at] = weight;
  least_[leaves_ + at] = weight;
}

void PrioritizedSampler::Update(absl::Span<const int64_t> examples,
                                absl::Span<const float> priorities) {
  const float lowest = LowestBeside(priorities);
  for (size_t i = 0; i < examples.size(); ++i) {
    // Keep the priority: an overflow says nothing about the example, and a bad example would
    // otherwise be in every further batch.
    if (!std::isfinite(priorities[i])) continue;
    const auto at = static_cast<size_t>(examples[i]);
    priorities_[at] = std::max(priorities[i], lowest);
    SetLeaf(examples[i]);
    // Recompute sums instead of correcting them by differences, so that the tree depends only on
    // the priorities and not on the updates.
    for (size_t node = (leaves_ + at) / 2; node >= 1; node /= 2) {
      sum_[node] = sum_[2 * node] + sum_[2 * node + 1];
      least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
    }
  }
}

int64_t PrioritizedSampler::Find(double share) const {
  double left = share * sum_[1];
  size_t node = 1;
  while (node < leaves_) {
    node *= 2;
    // Rounding must not lead the search into a subtree without examples.
    if (left >= sum_[node] && sum_[node + 1] > 0) {
      left -= sum_[node];
      ++node;
    }
  }
  return static_cast<int64_t>(node - leaves_);
}

double PrioritizedSampler::Probability(int64_t example) const {
  return sum_[leaves_ + static_cast<size_t>(example)] / sum_[1];
}

PrioritizedBatch PrioritizedSampler::Draw() const {
  const int64_t draw = position_.epoch * batches_per_epoch() + position_.batch;
  SplitMix64 random(options_.seed, static_cast<uint64_t>(draw));
  PrioritizedBatch batch;
  for (int64_t k = 0; k < options_.batch_size; ++k) {
    const double share =
        (static_cast<double>(k) + random.Uniform()) / static_cast<double>(options_.batch_size);
    const int64_t example = Find(share);
    // N and the total are the same for all examples and cancel.
    const double ratio = least_[1] / sum_[leaves_ + static_cast<size_t>(example)];
    batch.examples.push_back(example);
    batch.weights.push_back(static_cast<float>(std::pow(ratio, options_.importance_exponent)));
  }
  return batch;
}

void PrioritizedSampler::Advance() {
  ++position_.batch;
  if (position_.batch < batches_per_epoch()) return;
  position_ = {.epoch = position_.epoch + 1, .batch = 0};
}

}  // namespace genesis
