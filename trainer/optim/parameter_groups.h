#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/optim/optimizer_state.h"

namespace genesis {

// Parameters whose gradients are clipped by one norm.
struct ClippedGroup {
  std::optional<double> max_norm;         // nullopt for no clipping.
  std::vector<int64_t> optimizer_groups;  // Numbers of ParameterGroups.optimizer.
};

// A division of a model's parameters: by what they are updated with, and coarser by what they are
// clipped with.
struct ParameterGroups {
  std::vector<OptimizerGroup> optimizer;
  std::vector<ClippedGroup> clipped;
};

// Divides parameters as optimizer.parameter_groups say. Within a group that leaves weight decay to
// the optimizer, and outside of all, those of fewer than two dimensions are a group of their own
// where optimizer.no_decay_on_norms_and_biases asks for it. `spec` has every default filled in.
//
// INVALID_ARGUMENT where a group has no parameter.
absl::StatusOr<ParameterGroups> GroupParameters(
    const training::v1::JobSpec& spec,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters);

}  // namespace genesis
