#pragma once

#include <atomic>

namespace genesis {

// Facts about all jobs since the daemon started, without the sums of their steps. Written by the
// writer thread, read by any.
struct Counters {
  std::atomic<bool> newest_step_reduced{false};
  // How long jobs stay on workers: a moving average over those that succeeded; 0 before the first.
  std::atomic<double> expected_job_seconds{0};

  void NoteJob(double seconds) {
    constexpr double kWeight = 0.25;  // Of the newest; some ten jobs back it is forgotten.
    const double before = expected_job_seconds;
    expected_job_seconds = before == 0 ? seconds : before + kWeight * (seconds - before);
  }
};

}  // namespace genesis
