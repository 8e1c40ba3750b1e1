#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/precision.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/models/model.h"

namespace genesis {

// All that the code of a compiled step depends on, in one form for both sides: the worker looks for
// a package by it, and whoever makes the package reads it. Two steps of the same description can
// run the same package.
struct StepDescription {
  // JSON with one thing per line, in a fixed order: format, torch, device, processor, mode, model,
  // batch_size, parameters, buffers and fields, the last three each with name, type, shape and
  // strides; of a user's module also the SHA-256 of its file. No weight, no data and no path is
  // in it.
  std::string text;
  // SHA-256 of the text.
  std::string key;
};

// Grows when a package would be called in another way or by another text, or would be made better:
// 2 has vector instructions; 3 sums the group norms of channels_last maps by channel; 4 has
// no tanh in a GELU; 5 gives no gradient where the loss does not depend on a parameter; 6 trains
// weights that a scripted module has in a list.
inline constexpr int kStepFormat = 6;

// The step of `spec`, every default filled in, for `model` on its device, in a mode that runs.
// UNIMPLEMENTED for a step that cannot be compiled, with the reason.
absl::StatusOr<StepDescription> DescribeStep(const training::v1::JobSpec& spec, const Model& model,
                                             const Dataset& dataset,
                                             training::v1::PrecisionMode mode);

}  // namespace genesis
