#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "config/precision/mode.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// The number formats of a step in a precision mode.
struct StepFormat {
  // Format of the model's parameters; FP32 masters are separate.
  at::ScalarType weights = at::kFloat;
  std::optional<at::ScalarType> autocast;  // Format of the layers; nullopt for that of the weights.
  bool scaled = false;                     // Whether the loss is scaled.

  bool reduced() const { return autocast.has_value() || weights != at::kFloat; }
  // Returns the largest relative rounding error of the reduced format: half of the distance from 1
  // to the next number.
  double rounding_error() const {
    return weights == at::kHalf || autocast == at::kHalf ? 0x1p-11 : 0x1p-8;
  }
};

inline at::ScalarType ScalarTypeOf(NumberFormat format) {
  switch (format) {
    case NumberFormat::kFp16:
      return at::kHalf;
    case NumberFormat::kBf16:
      return at::kBFloat16;
    case NumberFormat::kFp32:
      break;
  }
  return at::kFloat;
}

// Returns the formats of a mode that runs: not UNSPECIFIED, not AUTO.
inline StepFormat FormatOf(training::v1::PrecisionMode mode) {
  const ModeTraits& traits = TraitsOf(mode);
  StepFormat format;
  format.weights = ScalarTypeOf(traits.weights);
  if (traits.layers != traits.weights) format.autocast = ScalarTypeOf(traits.layers);
  format.scaled = traits.scaled;
  return format;
}

}  // namespace genesis
