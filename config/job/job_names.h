#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// "RUNNING": the enum's name without its prefix; the number for one that a newer program sent.
std::string JobStateName(training::v1::JobState state);

// "NON_FINITE", likewise.
std::string FailureCauseName(training::v1::FailureCause cause);

// SUCCEEDED, FAILED, CANCELLED: written once and never left.
bool IsFinal(training::v1::JobState state);

}  // namespace genesis
