#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/training_state.h"

namespace genesis {

// Reads a checkpoint written by WriteCheckpoint, also after torch.load and torch.save in Python.
// Checks every record against its CRC-32 before use and executes nothing in the file. Messages
// begin with the path: NOT_FOUND, DATA_LOSS for a damaged file, INVALID_ARGUMENT for another kind
// of file.
absl::StatusOr<TrainingState> ReadCheckpoint(const std::string& path);

}  // namespace genesis
