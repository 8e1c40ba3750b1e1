#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace genesis {

// The pending requests of a run's caller, which the run polls between steps. Thread-safe.
class RunControl {
 public:
  void RequestCheckpoint() { checkpoint_.store(true, std::memory_order_release); }
  // A later stop without a checkpoint does not cancel an earlier one with it.
  void RequestStop(bool checkpoint) {
    if (checkpoint) checkpoint_.store(true, std::memory_order_release);
    stop_.store(true, std::memory_order_release);
  }
  bool TakeCheckpointRequest() { return checkpoint_.exchange(false, std::memory_order_acq_rel); }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }

  // Requests FP32 from the next step on, for the given reason.
  void RequestFp32(const std::string& reason) {
    const absl::MutexLock lock(&mutex_);
    fp32_reason_ = reason;
    fp32_.store(true, std::memory_order_release);
  }
  // Returns the reason; nullopt without a request. Takes no lock in that case.
  std::optional<std::string> TakeFp32Request() {
    if (!fp32_.load(std::memory_order_acquire)) return std::nullopt;
    const absl::MutexLock lock(&mutex_);
    fp32_.store(false, std::memory_order_release);
    return fp32_reason_;
  }

 private:
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> fp32_{false};
  absl::Mutex mutex_;
  std::string fp32_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
