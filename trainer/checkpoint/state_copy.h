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

// Copies the tensors of a run on a thread of its own while the next step goes forward and backward,
// which only read them; the step waits for the copy before it updates them (Mohan et al.,
// CheckFreq, FAST 2021). A GPU copies by itself into pinned memory, before what it is given later,
// so there no step waits.
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
  // `tensor`. A small one, or one with gaps between its elements, is copied at once on the CPU.
  at::Tensor Add(const at::Tensor& tensor);
  // After the last Add.
  void Start();

  // Until the copies are made; on any thread.
  void Wait() const;
  // Until an update may change what is copied: what it takes is time that training loses.
  void HoldUpdate();
  double held_seconds() const { return held_seconds_.load(std::memory_order_relaxed); }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> parts_;  // From, to.
  absl::Notification done_;
  std::optional<c10::Device> gpu_;
  std::optional<c10::Event> gpu_done_;
  std::atomic<double> held_seconds_{0};
  std::thread thread_;
};

}  // namespace genesis
