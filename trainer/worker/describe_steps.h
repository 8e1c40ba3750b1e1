#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Returns the steps of a job, one per mode that it could run in, as RunDescribeStep prints them:
// each with key and text, or why it cannot be compiled. With a folder of compiled steps, also loads
// the package there and adds whether it is used, or why not. Without a folder, adds the integer
// fields of a batch, with which a compiler checks its package. Opens the data and builds the model.
// Returns the error if that fails.
absl::StatusOr<std::string> DescribeSteps(const training::v1::StartJob& start);

}  // namespace genesis
