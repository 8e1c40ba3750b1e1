#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/replay_snapshot.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// Returns the name of a buffer's folder, with or without a trailing slash, for messages.
std::string ReplayName(const std::string& folder);

// Copies transitions in the format of TransitionRows.
absl::Status ReadReplayRows(const ReplaySnapshot& snapshot, uint64_t first, int64_t count,
                            float* out);

// Opens a snapshot of a replay buffer. Transitions without a priority get the highest existing one
// (1 if there is none), so that each is drawn soon, as Schaul et al. do.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenReplayTransitions(const std::string& folder);

}  // namespace genesis
