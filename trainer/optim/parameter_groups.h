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
  std::optional<double> max_norm;         // nullopt disables clipping.
  std::vector<int64_t> optimizer_groups;  // Indices into ParameterGroups.optimizer.
};

// A partition of a model's parameters: by optimizer settings and, coarser, by clipping.
struct ParameterGroups {
  std::vector<OptimizerGroup> optimizer;
  std::vector<ClippedGroup> clipped;
};

// Divides parameters according to optimizer.parameter_groups. With
// optimizer.no_decay_on_norms_and_biases, parameters of fewer than two dimensions form a separate
// group, within each group that leaves weight decay to the optimizer and outside of all groups.
// `spec` has every default filled in.
//
// INVALID_ARGUMENT if a group has no parameter.
absl::StatusOr<ParameterGroups> GroupParameters(
    const training::v1::JobSpec& spec,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters);

}  // namespace genesis
