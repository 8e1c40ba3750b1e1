#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// Reads a checkpoint written by WriteCheckpoint, also after torch.load and torch.save in Python.
// Every record is checked against its CRC-32 before use, and nothing in the file is executed. The
// message of a failure begins with the path: NOT_FOUND, DATA_LOSS for a damaged file,
// INVALID_ARGUMENT for one that holds something else.
absl::StatusOr<TrainingState> ReadCheckpoint(const std::string& path);

}  // namespace genesis
