#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The steps of a job, one per mode that it could run in, as RunDescribeStep prints them: each with
// key and text, or why it cannot be compiled; with a folder of compiled steps, also whether the
// package there is taken, or why not, which loads it; without one, the integers of a batch of the
// data, to compare a package on. Opens the data and builds the model.
// INVALID_ARGUMENT where that cannot be done.
absl::StatusOr<std::string> DescribeSteps(const training::v1::StartJob& start);

}  // namespace genesis
