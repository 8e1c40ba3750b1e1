#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// Transitions of an .npz or .safetensors file with the arrays of D4RL (see TrajectoryFileSpec).
//
// An episode ends where terminals or timeouts is true; transitions after the last such row are an
// episode that the recording cut short. Integer actions become one-hot columns.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenArrayTransitions(const std::string& path,
                                                                     int64_t memory_limit_bytes);

}  // namespace genesis
