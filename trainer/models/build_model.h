#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Builds the model of `spec` on the CPU, with weights drawn after torch.manual_seed(training.seed)
// in the order of a Python twin, and with the statistics of `dataset` as buffers. `spec` has every
// default filled in. INVALID_ARGUMENT if the dataset lacks a field or has one of another shape
// (naming both), or if an exported file cannot be used.
absl::StatusOr<std::unique_ptr<Model>> BuildModel(const training::v1::JobSpec& spec,
                                                  const Dataset& dataset);

}  // namespace genesis
