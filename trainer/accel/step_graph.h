#pragma once

#include <functional>
#include <memory>

namespace genesis {

// Operations that a device was given once and repeats on request, with the same memory: a CUDA
// graph.
//
// Owner: the captured step. Threads: one. Failure: exceptions of LibTorch; those of Capture leave
// nothing behind but garbage in memory that `work` itself allocated.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Runs `work`, whose operations are captured and not executed. Waits for the device before.
  virtual void Capture(const std::function<void()>& work) = 0;
  // Gives the device what was captured, after all that it was given before; does not wait.
  virtual void Replay() = 0;
};

// Makes an empty one. Empty itself where the device cannot capture.
using StepGraphMaker = std::function<std::unique_ptr<StepGraph>()>;

}  // namespace genesis
