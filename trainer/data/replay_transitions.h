#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// The content of a replay buffer when it was opened. Transitions without a priority get the highest
// one that is there (1 where none is), so that each is seen soon, as Schaul et al. do.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenReplayTransitions(const std::string& folder);

}  // namespace genesis
