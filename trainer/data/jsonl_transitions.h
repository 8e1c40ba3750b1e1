#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// Opens the transitions of a .jsonl file, one object per line: observation and next_observation
// (arrays of numbers, or a number), action (the same; an integer without a point is a discrete
// action and becomes one-hot columns), reward (a number), terminal and timeout (true, false, 1 or
// 0). Other members are ignored.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenJsonlTransitions(const std::string& path);

}  // namespace genesis
