#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/run/run_observer.h"

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

// Runs one job from data to final checkpoint on the calling thread, and says how it ended. Never
// throws: exceptions of LibTorch become Finished.failure here and nowhere else.
training::v1::Finished RunTraining(const training::v1::StartJob& start,
                                   const training::v1::DeviceInfo& device, RunControl& control,
                                   RunObserver& observer);

}  // namespace genesis
