#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"

namespace genesis {

// Copies the tensors of a run on a thread of its own while the next step goes forward and backward,
// which only read them; the step waits for the copy before it updates them (Mohan et al., CheckFreq,
// FAST 2021).
//
// Owner: shared by the state that is made of the copies and the step that waits. Threads: Add and
// Start on the run's, before any other; the rest on any. Failure: exceptions of LibTorch.
class StateCopy {
 public:
  StateCopy() = default;
  ~StateCopy();
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;

  // A tensor on the CPU that holds the values of `tensor` after Wait; until then nobody may change
  // `tensor`. What is small, on another device or with gaps between its elements is copied at once.
  at::Tensor Add(const at::Tensor& tensor);
  // After the last Add.
  void Start();

  void Wait() const { done_.WaitForNotification(); }
  // Wait, of an update: what it takes is time that training loses.
  void HoldUpdate();
  double held_seconds() const { return held_seconds_.load(std::memory_order_relaxed); }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> parts_;  // From, to.
  absl::Notification done_;
  std::atomic<double> held_seconds_{0};
  std::thread thread_;
};

}  // namespace genesis
