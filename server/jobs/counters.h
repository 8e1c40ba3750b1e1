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
  std::atomic<bool> newest_step_reduced{false};
  // How long jobs stay on workers: a moving average over those that succeeded; 0 before the first.
  std::atomic<double> expected_job_seconds{0};

  void NoteJob(double seconds) {
    constexpr double kWeight = 0.25;  // Of the newest; some ten jobs back it is forgotten.
    const double before = expected_job_seconds;
    expected_job_seconds = before == 0 ? seconds : before + kWeight * (seconds - before);
  }

  // Skipped over reduced-precision steps; 0 before the first.
  double OverflowRate() const {
    const int64_t reduced = reduced_precision_steps.load();
    return reduced == 0 ? 0.0
                        : static_cast<double>(skipped_steps.load()) / static_cast<double>(reduced);
  }
};

}  // namespace genesis
