#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// Opens the transitions of an .npz or .safetensors file with the arrays of D4RL (see
// TrajectoryFileSpec).
//
// An episode ends at a row whose terminals or timeouts is true. Transitions after the last such row
// form an episode that the recording cut short. Integer actions become one-hot columns.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenArrayTransitions(const std::string& path,
                                                                     int64_t memory_limit_bytes);

}  // namespace genesis
