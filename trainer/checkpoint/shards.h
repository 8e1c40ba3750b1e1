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

// The position of one writer among the ranks that write a sharded checkpoint.
struct ShardPlace {
  int rank = 0;
  int ranks = 1;
  // Distinguishes the shards of different attempts to write a step: letters, digits, '-'.
  std::string token;
};

// The part of a file name that marks a shard.
inline constexpr char kShardInfix[] = ".shard-";

// Returns the path of a shard of the checkpoint at `path`.
std::string ShardPath(const std::string& path, const ShardPlace& place);
// Returns the names of all files in the folder of `path` that are named like its shards or their
// manifests.
std::vector<std::string> ShardNames(const std::string& path);
// Removes the shards of `path` that `kept` does not list, with their manifests.
void RemoveShards(const std::string& path, const std::vector<ShardFile>& kept = {});

// Returns the tree of the tensors assigned to `place`: parameters, their averages and the
// optimizer's state, the largest parameter first to the least loaded rank. The state may lack the
// optimizer's entries of other ranks' parameters.
Value ShardTree(const TrainingState& state, const ShardPlace& place);
// Returns the tree of the file that lists the shards: the tree of ToTree, but with None for each
// weight that is in a shard, and without the state of the optimizer.
Value IndexTree(const TrainingState& state, const ShardPlace& place,
                const std::vector<ShardFile>& shards);

// Verifies that each file exists with its size and its SHA-256. DATA_LOSS names the first that does
// not match; INVALID_ARGUMENT for a file that is not named like a shard of `path`.
absl::Status VerifyShards(const std::string& path, const std::vector<ShardFile>& shards);

// Reads a file as ReadTorchArchive does. If the file lists shards, fills in their tensors, so that
// the tree equals that of an unsharded checkpoint. Verifies each shard before reading it.
absl::StatusOr<Value> ReadTree(const std::string& path);

}  // namespace genesis
