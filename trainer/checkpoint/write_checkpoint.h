#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/shards.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// The manifest's content besides the state.
struct CheckpointMeta {
  std::string job_id;
  std::optional<double> held_out_loss = std::nullopt;  // At this step, where it was measured.
  // Where several write it together: which of them this is.
  std::optional<ShardPlace> shard = std::nullopt;
};

// Writes `state` as a file that torch.load opens with its defaults; docs/checkpoints.md describes
// it. The manifest is written first, and the file is there only when it is whole, was read back and
// is durable. Returns its size. RESOURCE_EXHAUSTED on a full disk, DATA_LOSS when other bytes are
// read than were written. Waits until the state is complete. Throws what LibTorch throws.
absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path,
                                        const CheckpointMeta& meta = {});

// Writes the shard of `meta.shard` beside `path`, as durably. Returns its size.
absl::StatusOr<int64_t> WriteShard(const TrainingState& state, const std::string& path,
                                   const CheckpointMeta& meta);

// The shards of all ranks that are durable; nullopt while one is not there. DATA_LOSS for one that
// is of another job or step.
absl::StatusOr<std::optional<std::vector<ShardFile>>> FindShards(const std::string& path,
                                                                 int64_t step,
                                                                 const CheckpointMeta& meta);

// Writes `path`, which lists the shards: only then there is a checkpoint. Then removes what other
// attempts to write it left. Returns the size of all its files.
absl::StatusOr<int64_t> WriteIndex(const TrainingState& state, const std::string& path,
                                   const CheckpointMeta& meta,
                                   const std::vector<ShardFile>& shards);

}  // namespace genesis
