#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/predict/served_model.h"

namespace genesis {

// Build the predicting form of a world model and of a transformer. See ServedModel::Build.
absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedWorldModel(
    const training::v1::JobSpec& spec, const NamedTensors& weights);
absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedTransformer(
    const training::v1::JobSpec& spec, const NamedTensors& weights);

}  // namespace genesis
