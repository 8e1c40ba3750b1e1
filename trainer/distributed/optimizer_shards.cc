#include "trainer/distributed/optimizer_shards.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace genesis {
namespace {

std::vector<int> AssignOwners(const std::vector<at::Tensor>& masters, int ranks) {
  std::vector<size_t> order(masters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return masters[a].numel() > masters[b].numel(); });
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<int> owners(masters.size());
  for (const size_t parameter : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += masters[parameter].numel();
    owners[parameter] = static_cast<int>(least - load.begin());
  }
  return owners;
}

}  // namespace

OptimizerShards::OptimizerShards(RankGroup& ranks, std::vector<at::Tensor> masters)
    : ranks_(ranks), masters_(std::move(masters)), owners_(AssignOwners(masters_, ranks.size())) {}

std::vector<bool> OptimizerShards::owned() const {
  std::vector<bool> owned;
  for (const int owner : owners_) owned.push_back(owner == ranks_.rank());
  return owned;
}

void OptimizerShards::ShareWeights(GradientReducer& reducer) {
  if (reducer.ShareMasters(masters_, owners_)) return;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<at::Tensor> shard;
    for (size_t i = 0; i < masters_.size(); ++i) {
      if (owners_[i] == rank) shard.push_back(masters_[i]);
    }
    ranks_.CopyFrom(rank, shard);
  }
}

void OptimizerShards::GatherOnFirst(
    const std::vector<std::vector<std::pair<std::string, at::Tensor>>>& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (owners_[i] == 0 || (!ranks_.first() && !owns(i))) continue;
    for (const auto& [name, tensor] : entries[i]) ranks_.SendToFirst(owners_[i], tensor);
  }
}

}  // namespace genesis
