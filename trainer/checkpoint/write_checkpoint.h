#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// The manifest's content besides the state.
struct CheckpointMeta {
  std::string job_id;
  std::optional<double> held_out_loss = std::nullopt;  // At this step, where it was measured.
};

// Writes `state` as a file that torch.load opens with its defaults; docs/checkpoints.md describes
// it. The manifest is written first, and the file is there only when it is whole, was read back and
// is durable. Returns its size. RESOURCE_EXHAUSTED on a full disk, DATA_LOSS when other bytes are
// read than were written. Waits until the state is complete. Throws what LibTorch throws.
absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path,
                                        const CheckpointMeta& meta = {});

}  // namespace genesis
