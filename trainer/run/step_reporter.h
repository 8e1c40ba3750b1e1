#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/runtime/device_memory.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

using SteadyClock = std::function<std::chrono::steady_clock::time_point()>;

// Adds finished steps up to reports: the first step is reported at once, then at most one report
// every 100 ms. Progress goes on from where the attempts before left it.
//
// Owner: the run. Threads: one. Failure: none.
class StepReporter {
 public:
  // Parts of a report that are not metrics of steps.
  struct Options {
    int64_t samples_per_step = 0;
    // The memory that the device's allocator holds now; unset on a CPU.
    std::function<DeviceMemory()> device_memory;
    // How long the process has waited for other ranks since it was asked last; unset where it
    // trains alone.
    std::function<double()> wait_seconds;
    SteadyClock clock = [] { return std::chrono::steady_clock::now(); };
  };

  // `progress` holds what earlier attempts did.
  StepReporter(RunObserver& observer, const training::v1::Progress& progress, Options options);

  // `record.samples` is filled in here. `next_loss_scale` is the scale after the step,
  // `baseline_loss` that of FP32 at the step or 0.
  void Add(StepRecord record, double next_loss_scale, double baseline_loss, double seconds);
  // Returns the run to an earlier step, at which it had made `progress`. The time that was spent
  // since counts.
  void Rewind(training::v1::Progress progress);
  // Reports what is not yet reported, if anything.
  void Flush();

  // The duration of training, over all attempts, until now.
  double seconds() const;
  const training::v1::Progress& progress() const { return progress_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  RunObserver& observer_;
  const Options options_;
  training::v1::Progress progress_;
  training::v1::Steps pending_;
  const double seconds_before_;
  int64_t samples_since_start_ = 0;
  const Time start_;
  std::optional<Time> last_report_;
};

}  // namespace genesis
