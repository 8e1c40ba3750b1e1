#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

// The version of the layout of a checkpoint, which docs/checkpoints.md describes: Python's
// load_state_dict takes model_state_dict, optimizer_state_dict and scaler_state_dict; the rest is
// under "genesis".
inline constexpr int64_t kCheckpointFormat = 2;

// Counters of `Progress` that a checkpoint holds, under their names in the message.
inline constexpr const char* kProgressCounters[] = {"step",
                                                    "samples",
                                                    "skipped_steps",
                                                    "overflow_steps",
                                                    "reduced_precision_steps",
                                                    "scale_backoffs",
                                                    "first_transition",
                                                    "next_transition"};

Value ToTree(const TrainingState& state);

// Returns the state in a tree. Also reads format 1 of release 0.1.0, with defaults for entries that
// it lacks. INVALID_ARGUMENT with `file`, the entry, its value and what is accepted.
absl::StatusOr<TrainingState> FromTree(const std::string& file, const Value& root);

}  // namespace genesis
