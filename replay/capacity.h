#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Reads and writes the file FOLDER/capacity of a replay buffer. Its format is in segment.h.
namespace genesis {

// Returns the buffer's capacity when the daemon last had it open; nullopt if the daemon never
// appended to it. DATA_LOSS if the file is damaged.
absl::StatusOr<std::optional<int64_t>> ReadReplayCapacity(const std::string& folder);
absl::Status WriteReplayCapacity(const std::string& folder, int64_t capacity);

}  // namespace genesis
