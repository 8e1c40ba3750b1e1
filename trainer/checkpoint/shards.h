#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

// The place of a writer among those that write one checkpoint together.
struct ShardPlace {
  int rank = 0;
  int ranks = 1;
  // Tells the shards of one attempt to write a step from those of another: letters, digits, '-'.
  std::string token;
};

// In the names of shards alone.
inline constexpr char kShardInfix[] = ".shard-";

// The path of a shard of the checkpoint at `path`.
std::string ShardPath(const std::string& path, const ShardPlace& place);
// Names of all files in its folder that are called as its shards, and of their manifests.
std::vector<std::string> ShardNames(const std::string& path);
// Removes those shards of `path` that `kept` does not list, with their manifests.
void RemoveShards(const std::string& path, const std::vector<ShardFile>& kept = {});

// The tree of the tensors that fall to `place`: parameters, their averages and the optimizer's
// state, the largest parameter first to the rank that has least. The state may lack what the
// optimizer holds for parameters of others.
Value ShardTree(const TrainingState& state, const ShardPlace& place);
// The tree of the file that lists the shards: ToTree, with None for each tensor that is in one.
Value IndexTree(const TrainingState& state, const ShardPlace& place,
                const std::vector<ShardFile>& shards);

// Whether each file is there with its size and its SHA-256. DATA_LOSS that names the first that is
// not, INVALID_ARGUMENT for one that is not called as a shard of `path`.
absl::Status VerifyShards(const std::string& path, const std::vector<ShardFile>& shards);

// ReadTorchArchive, and where the file lists shards, with their tensors in the places of None: the
// tree of a checkpoint in one file. Each shard is verified before it is read.
absl::StatusOr<Value> ReadTree(const std::string& path);

}  // namespace genesis
