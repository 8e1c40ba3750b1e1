#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/predict/served_model.h"

namespace genesis {

// Builds an exported module that predicts. FAILED_PRECONDITION if it was exported without
// `predict`; see ServedModel::Build.
absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedModule(const training::v1::JobSpec& spec,
                                                               const NamedTensors& weights);

}  // namespace genesis
