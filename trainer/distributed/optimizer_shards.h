#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trainer/distributed/gradient_reducer.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// The shares of the ranks in the optimizer's state (Rajbhandari et al., ZeRO, SC 2020, stage 1):
// whole parameters, the largest first to the rank that has least, as
// torch.distributed.optim.ZeroRedundancyOptimizer.
//
// Owner: the training session; the ranks outlive it. Threads: one. Failure: RunFailure of the
// ranks.
class OptimizerShards {
 public:
  // `masters` are updated in place by the rank that owns each.
  OptimizerShards(RankGroup& ranks, std::vector<at::Tensor> masters);

  // By parameter, whether this rank owns it.
  std::vector<bool> owned() const;
  bool owns(size_t parameter) const { return owners_[parameter] == ranks_.rank(); }

  // After an update: gives each rank the masters that others own. The gradients of `reducer` are
  // lost.
  void ShareWeights(GradientReducer& reducer);
  // Gives rank 0 what others own. `entries` has the tensors of each parameter: on rank 0 those of
  // others are written to, elsewhere they are not looked at.
  void GatherOnFirst(const std::vector<std::vector<std::pair<std::string, at::Tensor>>>& entries);

 private:
  RankGroup& ranks_;
  const std::vector<at::Tensor> masters_;
  const std::vector<int> owners_;
};

}  // namespace genesis
