#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/precision.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Everything on which the code of a compiled step depends, as text. The worker finds a package by
// this text, and the compiler reads it. Two steps with the same description can run the same
// package.
struct StepDescription {
  // JSON with one item per line, in a fixed order: format, torch, device, processor,
  // processor_flags, mode, model, batch_size, parameters, buffers and fields, the last three each
  // with name, type, shape and strides. For a user's module also the SHA-256 of its file. It
  // contains no weights, data or paths.
  std::string text;
  // SHA-256 of the text.
  std::string key;
};

// Incremented when a package is called differently, described by another text, or compiled better:
// 2: vector instructions. 3: group norms of channels_last maps summed by channel. 4: no tanh in a
// GELU. 5: no gradient if the loss does not depend on a parameter. 6: trains weights in a list of a
// module.
inline constexpr int kStepFormat = 6;

// Describes the step of `spec`, with every default filled in, for `model` on its device, in a mode
// that runs. UNIMPLEMENTED, with the reason, if the step cannot be compiled.
absl::StatusOr<StepDescription> DescribeStep(const training::v1::JobSpec& spec, const Model& model,
                                             const Dataset& dataset,
                                             training::v1::PrecisionMode mode);

}  // namespace genesis
