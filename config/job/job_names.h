#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns "RUNNING": the enum's name without its prefix; the number for a value of a newer program.
std::string JobStateName(training::v1::JobState state);

// Returns "NON_FINITE", likewise.
std::string FailureCauseName(training::v1::FailureCause cause);

// Returns true for SUCCEEDED, FAILED, CANCELLED, which a job never leaves.
bool IsFinal(training::v1::JobState state);

}  // namespace genesis
