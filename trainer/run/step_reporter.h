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

// A `StepReporter` combines finished steps into reports: the first step is reported immediately,
// then at most one report is sent every 100 ms. Progress continues from earlier attempts.
//
// Owner: the run. Threads: one. Failure: none.
class StepReporter {
 public:
  // Parts of a report that are not metrics of steps.
  struct Options {
    int64_t samples_per_step = 0;
    // Returns the memory that the device's allocator holds now; unset on a CPU.
    std::function<DeviceMemory()> device_memory;
    // Returns the seconds that the process has waited for other ranks since the last call; unset if
    // it trains alone.
    std::function<double()> wait_seconds;
    SteadyClock clock = [] { return std::chrono::steady_clock::now(); };
  };

  // `progress` is the progress of earlier attempts.
  StepReporter(RunObserver& observer, const training::v1::Progress& progress, Options options);

  // Fills in `record.samples`. `next_loss_scale` is the scale after the step, `baseline_loss` is
  // Watchdog::baseline_loss, 0 if unknown.
  void Add(StepRecord record, double next_loss_scale, double baseline_loss, double seconds);
  // Sets the transitions that a job with dataset.replay.follow has seen: [first, next).
  void NoteTransitions(uint64_t first, uint64_t next);
  // Returns the run to an earlier step, at which its progress was `progress`. The time spent since
  // then still counts.
  void Rewind(training::v1::Progress progress);
  // Reports the steps that have not been reported, if any.
  void Flush();

  // Returns the training time of all attempts so far, in seconds.
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
  std::optional<int64_t> memory_bytes_;
  const Time start_;
  std::optional<Time> last_report_;
};

}  // namespace genesis
