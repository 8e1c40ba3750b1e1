#pragma once

#include <vector>

#include "absl/status/status.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/auth/caller.h"

namespace genesis {

// A Train call on its way to the writer thread, with the results of its file checks.
struct Submission {
  training::v1::TrainRequest request;
  Caller caller;
  // Files and folders that the specification names and that do not exist for the caller.
  std::vector<FieldError> missing;
  absl::Status room;  // RESOURCE_EXHAUSTED if the owner may store no checkpoints.
};

}  // namespace genesis
