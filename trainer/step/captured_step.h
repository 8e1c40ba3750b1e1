#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainer/accel/step_graph.h"
#include "trainer/models/model.h"

namespace genesis {

// The results that a step leaves on the device.
struct StepResults {
  torch::Tensor metrics;         // float32 [5]: see TrainStep.
  torch::Tensor gradient_norms;  // float32 [parameters], scaled.
};

// A whole step as a graph: forward, backward and update of every micro-batch read their inputs from
// memory that the next batches are copied into, so one launch makes the step where some hundred
// would (PyTorch: torch.cuda.graphs.make_graphed_callables, "whole-network capture").
//
// Owner: the train step. Threads: one. Failure: exceptions of LibTorch.
class CapturedStep {
 public:
  using Work = std::function<StepResults(const std::vector<Batch>& micro_batches)>;

  // Captures `work` for batches of these shapes, and executes nothing of it. Memory that it reads
  // besides, and what it changes, has to stay where it is while this lives.
  CapturedStep(std::unique_ptr<StepGraph> graph, const std::vector<Batch>& micro_batches,
               const Work& work);

  // Whether they have the shapes that were captured.
  bool Fits(const std::vector<Batch>& micro_batches) const;
  // Runs the step on these. Requires Fits(). The results stay as they are in later replays.
  StepResults Replay(const std::vector<Batch>& micro_batches);

 private:
  std::unique_ptr<StepGraph> graph_;
  std::vector<Batch> inputs_;
  StepResults results_;
};

}  // namespace genesis
