#pragma once

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// An exception that ends a run from any depth. RunTraining catches it together with the exceptions
// of LibTorch, so that a run has one way out.
struct RunFailure {
  training::v1::FailureCause cause;
  std::string message;
};

// Throws RunFailure unless `status` is OK.
void Require(const absl::Status& status, training::v1::FailureCause cause);

// Returns a Finished message with this failure, without progress.
training::v1::Finished FailedRun(const RunFailure& failure);

// Returns the failure of the job that corresponds to an exception of LibTorch or of the standard
// library.
RunFailure ExplainException(const std::exception& error);

}  // namespace genesis
