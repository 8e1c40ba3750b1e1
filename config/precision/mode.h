#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

enum class NumberFormat { kFp32, kFp16, kBf16 };

// The properties of a precision mode that hold on any device: one row for each mode in which a step
// can run.
struct ModeTraits {
  training::v1::PrecisionMode mode;
  NumberFormat weights;  // Format of the model's parameters; FP32 masters are beside reduced ones.
  NumberFormat layers;   // Format of products: autocast if it differs from `weights`.
  bool scaled;           // The loss is scaled.
};

// Returns the row of FP32 for a mode without its own (UNSPECIFIED, AUTO, a newer client's).
const ModeTraits& TraitsOf(training::v1::PrecisionMode mode);

bool IsReducedPrecision(training::v1::PrecisionMode mode);
// Returns true if steps of the mode use a loss scale.
bool HasLossScale(training::v1::PrecisionMode mode);

// Returns "MIXED_BF16"; the number for an unknown mode.
std::string PrecisionName(training::v1::PrecisionMode mode);
// Returns "fp32", "fp16" or "bf16", the format of its layers, for the label of metrics.
std::string PrecisionLabel(training::v1::PrecisionMode mode);

}  // namespace genesis
