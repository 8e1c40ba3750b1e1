#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

enum class NumberFormat { kFp32, kFp16, kBf16 };

// The properties of a precision mode that hold wherever it runs: one row for each mode that a step
// can run in.
struct ModeTraits {
  training::v1::PrecisionMode mode;
  NumberFormat weights;  // Of the model's parameters; FP32 masters are beside reduced ones.
  NumberFormat layers;   // What products are computed in: autocast where it differs from `weights`.
  bool scaled;           // The loss is scaled.
};

// FP32's for a mode that is none to run in (UNSPECIFIED, AUTO, a newer client's).
const ModeTraits& TraitsOf(training::v1::PrecisionMode mode);

bool IsReducedPrecision(training::v1::PrecisionMode mode);
// Steps of the mode use a loss scale.
bool HasLossScale(training::v1::PrecisionMode mode);

// "MIXED_BF16"; the number of a mode that is not known here.
std::string PrecisionName(training::v1::PrecisionMode mode);
// "fp32", "fp16" or "bf16", the format of its layers: the label of metrics.
std::string PrecisionLabel(training::v1::PrecisionMode mode);

}  // namespace genesis
