#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/run/training_run.h"

namespace genesis {

using SteadyClock = std::function<std::chrono::steady_clock::time_point()>;

// Adds finished steps up to reports: the first step is reported at once, then at most one report
// every 100 ms. Progress goes on from where the attempts before left it.
//
// Owner: the run. Threads: one. Failure: none.
class StepReporter {
 public:
  // What is reported besides the figures of steps.
  struct Options {
    int64_t samples_per_step = 0;
    bool reduced_precision = false;
    // Bytes held on the device now; unset on a CPU.
    std::function<int64_t()> device_memory;
    SteadyClock clock = [] { return std::chrono::steady_clock::now(); };
  };

  // `progress` holds what earlier attempts did.
  StepReporter(RunObserver& observer, const training::v1::Progress& progress, Options options);

  // `record.samples` is filled in here. `next_loss_scale` is the scale after the step.
  void Add(StepRecord record, double next_loss_scale, double seconds);
  // Reports what is not yet reported, if anything.
  void Flush();

  const training::v1::Progress& progress() const { return progress_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  RunObserver& observer_;
  const Options options_;
  training::v1::Progress progress_;
  training::v1::Steps pending_;
  const int64_t samples_before_;
  const Time start_;
  std::optional<Time> last_report_;
};

}  // namespace genesis
