#pragma once

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns true for SUCCEEDED, FAILED and CANCELLED, which a job never leaves.
bool IsFinal(training::v1::JobState state);

}  // namespace genesis
