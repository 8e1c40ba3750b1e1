#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// Writes `state` as a file that torch.load opens with its defaults: a dict of model_state_dict,
// optimizer_state_dict (of torch.optim.AdamW), scaler_state_dict (of torch.amp.GradScaler, empty
// where the mode has no scale) and genesis (format_version, position, generator state). The file is
// there only when it is whole and durable. Returns its size. RESOURCE_EXHAUSTED on a full disk.
absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path);

}  // namespace genesis
