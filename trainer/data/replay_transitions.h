#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// Opens a snapshot of a replay buffer. Transitions without a priority get the highest existing one
// (1 if there is none), so that each is drawn soon, as Schaul et al. do.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenReplayTransitions(const std::string& folder);

}  // namespace genesis
