#pragma once

#include <functional>
#include <memory>

namespace genesis {

// Operations that a device captures once and replays on request, with the same memory: a CUDA
// graph.
//
// Owner: the captured step. Threads: one. Failure: exceptions of LibTorch. After a failed Capture,
// only memory that `work` itself allocated is undefined.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Runs `work`, whose operations are captured but not executed. First waits for the device.
  virtual void Capture(const std::function<void()>& work) = 0;
  // Submits the captured operations to the device, after all earlier work. Does not wait.
  virtual void Replay() = 0;
};

// Creates an empty graph. Empty if the device cannot capture.
using StepGraphMaker = std::function<std::unique_ptr<StepGraph>()>;

}  // namespace genesis
