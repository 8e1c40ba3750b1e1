#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainer/cuda/step_graph.h"
#include "trainer/models/base/model.h"

namespace genesis {

// The results that a step leaves on the device.
struct StepResults {
  torch::Tensor metrics;         // float32 [5]: see TrainStep::Make.
  torch::Tensor gradient_norms;  // float32 [parameters], scaled.
};

// A whole step as a CUDA graph. Forward and backward of every micro-batch, and the update, read
// their inputs from fixed memory that the next batches are copied into, so one launch replaces some
// hundred (PyTorch: torch.cuda.graphs.make_graphed_callables, "whole-network capture").
//
// Owner: the train step. Threads: one. Failure: exceptions of LibTorch.
class CapturedStep {
 public:
  using Work = std::function<StepResults(const std::vector<Batch>& micro_batches)>;

  // Captures `work` for batches of these shapes without executing it. All other memory that it
  // reads or changes has to stay at its address while this object lives.
  CapturedStep(std::unique_ptr<StepGraph> graph, const std::vector<Batch>& micro_batches,
               const Work& work);

  // Returns whether the batches have the captured shapes.
  bool Fits(const std::vector<Batch>& micro_batches) const;
  // Runs the step on these batches. Requires Fits(). Later replays do not overwrite the results.
  StepResults Replay(const std::vector<Batch>& micro_batches);

 private:
  std::unique_ptr<StepGraph> graph_;
  std::vector<Batch> inputs_;
  StepResults results_;
};

}  // namespace genesis
