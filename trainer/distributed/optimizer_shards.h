#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trainer/distributed/gradient_reducer.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// The optimizer's update and state, sharded over the ranks (Rajbhandari et al., ZeRO, SC 2020,
// stage 1). Ranks that share memory keep one copy of weights and state there. Each updates its part
// of every parameter, and nothing is sent. Otherwise each rank has its own weights, owns whole
// parameters, assigned largest first to the least loaded rank as in
// torch.distributed.optim.ZeroRedundancyOptimizer, and broadcasts those that it updated.
//
// Owner: the training session; ranks and reducer outlive it. Threads: one. Failure: RunFailure of
// the ranks.
class OptimizerShards {
 public:
  // Returns the bytes of common memory for `masters` and two tensors of state for each; 0 if
  // masters cannot be moved there because they are on a GPU or share a storage with other tensors.
  static size_t CommonBytes(const std::vector<at::Tensor>& masters);

  // Requires that `reducer` was created with CommonBytes(masters). If there is common memory, moves
  // the masters and all that shares their storage there, with the values of rank 0.
  OptimizerShards(RankGroup& ranks, GradientReducer& reducer, std::vector<at::Tensor> masters);

  // Returns whether the ranks have one copy of weights and state. Each may then write its part only
  // while the others neither read nor write: after all have summed their gradients, and until
  // ShareWeights.
  bool together() const { return common_.numel() > 0; }
  // Returns, per parameter, whether this rank updates it or a part of it.
  std::vector<bool> owned() const;
  bool owns(size_t parameter) const { return together() || owners_[parameter] == ranks_.rank(); }
  // Returns zeros like `like` for the optimizer's state, in common memory if there is any. All
  // ranks call it in the same order, at most twice for each of the masters.
  at::Tensor Zeros(const at::Tensor& like);

  // Call after an update. On return all ranks have all weights.
  void ShareWeights();
  // Call before replacing weights or state. Returns once no rank uses the old ones.
  void AwaitReaders();
  // Sends rank 0 the state that other ranks own. `entries` has the state of each parameter. Rank 0
  // overwrites the entries that other ranks own; each other rank reads only the entries it owns.
  void GatherOnFirst(const std::vector<std::vector<std::pair<std::string, at::Tensor>>>& entries);

 private:
  void MoveMasters();
  void* Take(size_t bytes);

  RankGroup& ranks_;
  GradientReducer& reducer_;
  const std::vector<at::Tensor> masters_;
  const std::vector<int> owners_;  // Used if ranks are not together.
  const at::Tensor common_;
  size_t taken_ = 0;  // Bytes of common_ in use.
  bool updated_ = false;
};

}  // namespace genesis
