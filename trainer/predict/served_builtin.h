#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/predict/served_model.h"

namespace genesis {

// Build a world model, or a transformer, that predicts. See ServedModel::Build.
absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedWorldModel(
    const training::v1::JobSpec& spec, const NamedTensors& weights);
absl::StatusOr<std::unique_ptr<ServedModel>> BuildServedTransformer(
    const training::v1::JobSpec& spec, const NamedTensors& weights);

}  // namespace genesis
