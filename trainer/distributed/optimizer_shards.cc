#include "trainer/distributed/optimizer_shards.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "trainer/optim/share_by_size.h"

namespace genesis {
namespace {

std::vector<int> AssignOwners(const std::vector<at::Tensor>& masters, int ranks) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& master : masters) sizes.push_back(master.numel());
  return ShareBySize(sizes, ranks);
}

// Each tensor begins on a cache line.
size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Returns the distinct storages of the masters, in order.
std::vector<c10::Storage> Storages(const std::vector<at::Tensor>& masters) {
  std::vector<c10::Storage> storages;
  std::set<const c10::StorageImpl*> seen;
  for (const at::Tensor& master : masters) {
    const c10::Storage& storage = master.storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) storages.push_back(storage);
  }
  return storages;
}

// Returns whether the masters fill their storages, which then hold no other tensor.
bool OwnTheirStorages(const std::vector<at::Tensor>& masters) {
  std::map<const c10::StorageImpl*, size_t> covered;
  for (const at::Tensor& master : masters) {
    covered[master.storage().unsafeGetStorageImpl()] += master.nbytes();
  }
  return std::all_of(covered.begin(), covered.end(),
                     [](const auto& each) { return each.first->nbytes() == each.second; });
}

}  // namespace

size_t OptimizerShards::CommonBytes(const std::vector<at::Tensor>& masters) {
  if (!masters.front().is_cpu() || !OwnTheirStorages(masters)) return 0;
  size_t bytes = 0;
  for (const c10::Storage& storage : Storages(masters)) bytes += Aligned(storage.nbytes());
  for (const at::Tensor& master : masters) bytes += 2 * Aligned(master.nbytes());
  return bytes;
}

OptimizerShards::OptimizerShards(RankGroup& ranks, GradientReducer& reducer,
                                 std::vector<at::Tensor> masters)
    : ranks_(ranks),
      reducer_(reducer),
      masters_(std::move(masters)),
      owners_(AssignOwners(masters_, ranks.size())),
      common_(reducer.common().defined() ? reducer.common() : at::empty({0}, at::kByte)) {
  if (together()) MoveMasters();
}

void OptimizerShards::MoveMasters() {
  std::vector<std::pair<c10::Storage, void*>> moves;
  for (const c10::Storage& storage : Storages(masters_)) {
    moves.emplace_back(storage, Take(storage.nbytes()));
    if (ranks_.first()) std::memcpy(moves.back().second, storage.data(), storage.nbytes());
  }
  reducer_.Meet();
  for (auto& [storage, place] : moves) {
    // Keep the memory mapped as long as a tensor uses it.
    storage.set_data_ptr_noswap({place, new at::Tensor(common_),
                                 [](void* held) { delete static_cast<at::Tensor*>(held); },
                                 at::kCPU});
  }
}

void* OptimizerShards::Take(size_t bytes) {
  const size_t begin = taken_;
  taken_ += Aligned(bytes);
  TORCH_CHECK(taken_ <= common_.nbytes(), "common memory is smaller than what is kept in it");
  return common_.mutable_data_ptr<uint8_t>() + begin;
}

at::Tensor OptimizerShards::Zeros(const at::Tensor& like) {
  if (!together()) return at::zeros_like(like);
  return at::from_blob(
      Take(like.nbytes()), like.sizes(), like.strides(), [held = common_](void*) {},
      like.options());
}

std::vector<bool> OptimizerShards::owned() const {
  std::vector<bool> owned;
  for (size_t i = 0; i < owners_.size(); ++i) owned.push_back(owns(i));
  return owned;
}

void OptimizerShards::ShareWeights() {
  if (together()) {
    updated_ = true;
    reducer_.Meet();
    return;
  }
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<at::Tensor> shard;
    for (size_t i = 0; i < masters_.size(); ++i) {
      if (owners_[i] == rank) shard.push_back(masters_[i]);
    }
    ranks_.CopyFrom(rank, shard);
  }
}

void OptimizerShards::AwaitReaders() {
  // Skip this before the first update: a rank that failed to load its state would never arrive.
  if (together() && updated_) reducer_.Meet();
}

void OptimizerShards::GatherOnFirst(
    const std::vector<std::vector<std::pair<std::string, at::Tensor>>>& entries) {
  if (together()) return;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (owners_[i] == 0 || (!ranks_.first() && !owns(i))) continue;
    for (const auto& [name, tensor] : entries[i]) ranks_.SendToFirst(owners_[i], tensor);
  }
}

}  // namespace genesis
