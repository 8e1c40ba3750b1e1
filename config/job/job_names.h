#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns the name without prefix, "RUNNING"; the number for a value of a newer version.
std::string JobStateName(training::v1::JobState state);

// Returns the name without prefix, "NON_FINITE"; the number for a value of a newer version.
std::string FailureCauseName(training::v1::FailureCause cause);

// Returns true for SUCCEEDED, FAILED and CANCELLED, which a job never leaves.
bool IsFinal(training::v1::JobState state);

}  // namespace genesis
