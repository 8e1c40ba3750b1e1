#pragma once

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

#include "trainer/distributed/gradient_reducer.h"
#include "trainer/models/base/model.h"
#include "trainer/optim/master_weights.h"
#include "trainer/step/gradient_hooks.h"

namespace genesis {

// A `GradientExchange` moves this rank's gradients from the model to the reducer: each as soon as
// the last backward pass of a step computes it, or all after the pass (a joint graph, a fault).
// Micro-batches before the last one exchange nothing (DistributedDataParallel.no_sync).
//
// Owner: the train step; the other objects outlive it. Threads: one. Failure: exceptions of
// LibTorch, RunFailure of the ranks.
class GradientExchange {
 public:
  // Without `overlaps`, nothing is sent before Finish because fault injection changes gradients
  // before that.
  GradientExchange(const Model& model, MasterWeights& weights, GradientReducer& reducer,
                   bool overlaps);

  // Call before each step of a mode that has a loss scale (float32, no dimensions). Sync: on a GPU,
  // if compression carries errors over to the next step.
  void NoteScale(const torch::Tensor& scale);
  // Runs the last backward pass of a step and returns the result of `pass`.
  torch::Tensor RunLast(const std::function<torch::Tensor()>& pass);
  // Replaces the weights' gradients by the means over the ranks and their arrived() by the sums.
  // Returns the mean loss. While a step is `captured`, skips the work of the host.
  torch::Tensor Finish(const torch::Tensor& loss, bool captured);
  // Returns, after Finish, the norms of the means over the ranks, float32 [parameters].
  torch::Tensor Norms() const { return reducer_.Norms(); }
  // Call with each replay of a captured step.
  void Agree() { reducer_.Agree(); }
  // Call after an interrupted step.
  void Restart() { reducer_.Restart(); }

 private:
  void Move(size_t parameter);

  MasterWeights& weights_;
  GradientReducer& reducer_;
  std::optional<GradientHooks> hooks_;
  std::vector<bool> moved_;  // For each parameter, in this step.
  float scale_ = 0;
};

}  // namespace genesis
