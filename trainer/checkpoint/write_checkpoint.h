#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/shards.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// The parts of a checkpoint that its state lacks.
struct CheckpointMeta {
  std::string job_id;
  std::optional<double> held_out_loss = std::nullopt;  // Set if it was measured at this step.
  // If several ranks write the checkpoint together, this rank's position among them.
  std::optional<ShardPlace> shard = std::nullopt;
};

// Writes `state` as a file that torch.load opens with its defaults (see docs/checkpoints.md). The
// file gets its name last, after it was read back and after its manifest is durable. Returns its
// size. RESOURCE_EXHAUSTED on a full disk, DATA_LOSS if the bytes read back differ. Waits until the
// state is complete. Throws the exceptions of LibTorch.
absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path,
                                        const CheckpointMeta& meta = {});

// Writes the shard of `meta.shard` next to `path`, with the same durability. Returns its size.
absl::StatusOr<int64_t> WriteShard(const TrainingState& state, const std::string& path,
                                   const CheckpointMeta& meta);

// Returns the durable shards of all ranks, or nullopt if a shard is missing. DATA_LOSS if a shard
// belongs to another job or step.
absl::StatusOr<std::optional<std::vector<ShardFile>>> FindShards(const std::string& path,
                                                                 int64_t step,
                                                                 const CheckpointMeta& meta);

// Writes `path`, which lists the shards and so completes the checkpoint. Then removes the shards of
// other attempts to write it. Returns the size of the file and its shards.
absl::StatusOr<int64_t> WriteIndex(const TrainingState& state, const std::string& path,
                                   const CheckpointMeta& meta,
                                   const std::vector<ShardFile>& shards);

}  // namespace genesis
