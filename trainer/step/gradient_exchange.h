#pragma once

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

#include "trainer/distributed/gradient_reducer.h"
#include "trainer/models/model.h"
#include "trainer/optim/master_weights.h"
#include "trainer/step/gradient_hooks.h"

namespace genesis {

// The gradients of one of several ranks on their way from the model to the reducer: each as soon as
// the last backward pass of a step has made it, or all of them after a graph that gives them at
// once. Micro-batches before the last exchange nothing (DistributedDataParallel.no_sync).
//
// Owner: the train step; the rest outlives it. Threads: one. Failure: exceptions of LibTorch,
// RunFailure of the ranks.
class GradientExchange {
 public:
  // Without `overlaps` nothing is sent before Finish: fault injection changes gradients between.
  GradientExchange(const Model& model, MasterWeights& weights, GradientReducer& reducer,
                   bool overlaps);

  // Before each step of a mode that has a loss scale (float32, no dimensions). Sync: on a GPU,
  // where compression carries its errors over.
  void NoteScale(const torch::Tensor& scale);
  // Makes the last backward pass of a step; returns what `pass` does.
  torch::Tensor RunLast(const std::function<torch::Tensor()>& pass);
  // Makes gradients and arrivals of the weights those of all ranks, and returns the mean of the
  // loss; while a step is `captured`, without what the host does of it.
  torch::Tensor Finish(const torch::Tensor& loss, bool captured);
  // After Finish: of the means over the ranks, float32 [parameters].
  torch::Tensor Norms() const { return reducer_.Norms(); }
  // With each replay of a captured step.
  void Agree() { reducer_.Agree(); }
  // After a step that was broken off.
  void Restart() { reducer_.Restart(); }

 private:
  void Move(size_t parameter);

  MasterWeights& weights_;
  GradientReducer& reducer_;
  std::optional<GradientHooks> hooks_;
  std::vector<bool> moved_;  // Of each parameter, in this step.
  float scale_ = 0;
};

}  // namespace genesis
