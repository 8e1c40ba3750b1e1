#pragma once

#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// NOT_FOUND, for every method that takes the id of a job or of a checkpoint.
absl::Status NoSuchJob(const std::string& id);
absl::Status NoSuchCheckpoint(const std::string& id);

// Builds the failure stored with a job that failed without a process exit.
training::v1::Failure MakeFailure(training::v1::FailureCause cause, std::string message);

}  // namespace genesis
