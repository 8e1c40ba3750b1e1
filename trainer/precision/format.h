#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// What a precision mode means for a step.
struct StepFormat {
  at::ScalarType weights = at::kFloat;     // Of the model's parameters; FP32 masters beside them.
  std::optional<at::ScalarType> autocast;  // Of the layers; nullopt for the weights' own.
  bool scaled = false;                     // The loss is scaled.

  bool reduced() const { return autocast.has_value() || weights != at::kFloat; }
  // The largest of the reduced format, relative: half of the distance from 1 to the next number.
  double rounding_error() const {
    return weights == at::kHalf || autocast == at::kHalf ? 0x1p-11 : 0x1p-8;
  }
};

// Requires a mode that runs: not UNSPECIFIED, not AUTO.
inline StepFormat FormatOf(training::v1::PrecisionMode mode) {
  switch (mode) {
    case training::v1::PRECISION_MODE_FP16:
      return {.weights = at::kHalf, .autocast = std::nullopt, .scaled = true};
    case training::v1::PRECISION_MODE_BF16:
      return {.weights = at::kBFloat16, .autocast = std::nullopt, .scaled = false};
    case training::v1::PRECISION_MODE_MIXED_FP16:
      return {.weights = at::kFloat, .autocast = at::kHalf, .scaled = true};
    case training::v1::PRECISION_MODE_MIXED_BF16:
      return {.weights = at::kFloat, .autocast = at::kBFloat16, .scaled = false};
    default:
      return {};
  }
}

}  // namespace genesis
