#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "c10/core/Event.h"

namespace genesis {

// A copy of a run's tensors, made by a background thread during forward and backward of the next
// step, which only read them. The step waits for the copy before it updates them (Mohan et al.,
// CheckFreq, FAST 2021). A GPU itself copies into pinned memory before its later work, so its steps
// never wait.
//
// Owner: shared by the state built from the copies and the step that waits. Threads: Add and Start
// on the run's thread, before any other call; the rest on any. Failure: exceptions of LibTorch.
class StateCopy {
 public:
  StateCopy() = default;
  ~StateCopy();
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;

  // Returns a CPU tensor that holds the values of `tensor` after Wait. Until then `tensor` must not
  // change. A small CPU tensor, or one with gaps between its elements, is copied immediately.
  at::Tensor Add(const at::Tensor& tensor);
  // Starts copying. Call after the last Add.
  void Start();

  // Waits until the copies are complete. Any thread may call it.
  void Wait() const;
  // Waits until an update may change the tensors, and sets held_seconds() to the time waited.
  void HoldUpdate();
  double held_seconds() const { return held_seconds_.load(std::memory_order_relaxed); }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> parts_;  // Source, destination.
  absl::Notification done_;
  std::optional<c10::Device> gpu_;
  std::optional<c10::Event> gpu_done_;
  std::atomic<double> held_seconds_{0};
  std::thread thread_;
};

}  // namespace genesis
