#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Ends a run from any depth. Thrown inside trainer/run/ and caught in RunTraining, where the
// exceptions of LibTorch are caught too, so that a run has one way out for all of them.
struct RunFailure {
  training::v1::FailureCause cause;
  std::string message;
};

// Throws RunFailure unless `status` is OK.
void Require(const absl::Status& status, training::v1::FailureCause cause);

// How a run ends by it, without its progress.
training::v1::Finished FailedRun(const RunFailure& failure);

// The failure that an exception of LibTorch or of the standard library means for the job.
RunFailure ExplainException(const std::exception& error);

}  // namespace genesis
