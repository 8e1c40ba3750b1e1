#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Wishes of whoever started a run; read by the run at each step boundary. Thread-safe.
class RunControl {
 public:
  void RequestCheckpoint() { checkpoint_.store(true, std::memory_order_release); }
  // A stop with a checkpoint is not weakened by a later stop without one.
  void RequestStop(bool checkpoint) {
    if (checkpoint) checkpoint_.store(true, std::memory_order_release);
    stop_.store(true, std::memory_order_release);
  }
  bool TakeCheckpointRequest() { return checkpoint_.exchange(false, std::memory_order_acq_rel); }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> stop_{false};
};

// One finished step, as --telemetry writes it.
struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;   // Unscaled, before clipping.
  double loss_scale = 1;  // That the step used.
  bool skipped = false;
  int64_t samples = 0;  // Since the job began.
};

// Where a run tells what happens. Called on the run's threads; must not block.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void OnStarted(const training::v1::Started& started) = 0;
  virtual void OnStep(const StepRecord&) {}
  virtual void OnSteps(const training::v1::Steps& steps) = 0;
  virtual void OnCheckpoint(const training::v1::CheckpointWritten& written) = 0;
  virtual void OnLog(const std::string& line) = 0;
};

// Runs one job from data to final checkpoint on the calling thread, and says how it ended. Never
// throws: exceptions of LibTorch become Finished.failure here and nowhere else.
training::v1::Finished RunTraining(const training::v1::StartJob& start, RunControl& control,
                                   RunObserver& observer);

}  // namespace genesis
