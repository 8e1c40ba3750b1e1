#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns a key that jobs share if their losses are comparable step by step: equal model, data,
// optimizer, batch, seed and length. Precision, and all that does not change the steps, such as
// checkpoints and scheduling, may differ. All defaults of `spec` must be filled in.
std::string WorkloadKey(const training::v1::JobSpec& spec);

}  // namespace genesis
