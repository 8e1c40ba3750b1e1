#pragma once

#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Return NOT_FOUND, for every method that takes the ID of a job or of a checkpoint.
absl::Status NoSuchJob(const std::string& id);
absl::Status NoSuchCheckpoint(const std::string& id);

// Returns a failure to store with a job; it has no exit code until the caller sets one.
training::v1::Failure MakeFailure(training::v1::FailureCause cause, std::string message);

}  // namespace genesis
