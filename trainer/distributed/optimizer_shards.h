#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trainer/distributed/gradient_reducer.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// The shares of the ranks in the optimizer's update and state (Rajbhandari et al., ZeRO, SC 2020,
// stage 1). Ranks that share memory keep one copy of weights and state there, and each updates its
// part of every parameter: nothing is sent. Other ranks have weights of their own and own whole
// parameters, the largest first to the rank that has least, as
// torch.distributed.optim.ZeroRedundancyOptimizer; each sends on what it updated.
//
// Owner: the training session; ranks and reducer outlive it. Threads: one. Failure: RunFailure of
// the ranks.
class OptimizerShards {
 public:
  // Bytes of common memory in which `masters` and two tensors of state for each have room; 0 where
  // masters cannot be moved there, for they are on a GPU or lie in one storage with others.
  static size_t CommonBytes(const std::vector<at::Tensor>& masters);

  // Requires that `reducer` was made with CommonBytes(masters). Moves the masters and whatever
  // shares their storage to common memory, with the values of rank 0, if there is any.
  OptimizerShards(RankGroup& ranks, GradientReducer& reducer, std::vector<at::Tensor> masters);

  // Whether the ranks have one copy of weights and state. Each may then write to its part while
  // the others neither read nor write: after all have added up their gradients, and until
  // ShareWeights.
  bool together() const { return common_.numel() > 0; }
  // By parameter, whether this rank updates it, or its part of it.
  std::vector<bool> owned() const;
  bool owns(size_t parameter) const { return together() || owners_[parameter] == ranks_.rank(); }
  // Zeros like `like`, for the optimizer's state: in common memory if there is any. Called by all
  // ranks in the same order, twice for each of the masters at most.
  at::Tensor Zeros(const at::Tensor& like);

  // After an update: all ranks have all weights then.
  void ShareWeights();
  // Before weights or state are put in place otherwise: returns once no rank uses those before.
  void AwaitReaders();
  // Gives rank 0 what others own. `entries` has the tensors of each parameter: on rank 0 those of
  // others are written to, elsewhere they are not looked at.
  void GatherOnFirst(const std::vector<std::vector<std::pair<std::string, at::Tensor>>>& entries);

 private:
  void MoveMasters();
  void* Take(size_t bytes);

  RankGroup& ranks_;
  GradientReducer& reducer_;
  const std::vector<at::Tensor> masters_;
  const std::vector<int> owners_;  // Where ranks are not together.
  const at::Tensor common_;
  size_t taken_ = 0;  // Bytes of it.
  bool updated_ = false;
};

}  // namespace genesis
