#pragma once

#include <atomic>
#include <cstdint>

namespace genesis {

// Sums over all jobs since the daemon started. Written by the writer thread, read by any.
struct Counters {
  std::atomic<int64_t> steps{0};
  std::atomic<int64_t> samples{0};
  std::atomic<int64_t> reduced_precision_steps{0};
  std::atomic<int64_t> skipped_steps{0};
  std::atomic<double> current_scale{0};

  // Skipped over reduced-precision steps; 0 before the first.
  double OverflowRate() const {
    const int64_t reduced = reduced_precision_steps.load();
    return reduced == 0 ? 0.0
                        : static_cast<double>(skipped_steps.load()) / static_cast<double>(reduced);
  }
};

}  // namespace genesis
