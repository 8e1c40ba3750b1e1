#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

enum class NumberFormat { kFp32, kFp16, kBf16 };

// The properties of a precision mode that do not depend on the device: one row for each
// mode that a step can run in.
struct ModeTraits {
  training::v1::PrecisionMode mode;
  NumberFormat weights;  // Parameters; reduced ones have FP32 masters.
  NumberFormat layers;   // Matrix products; autocast if it differs from `weights`.
  bool scaled;           // The loss is scaled.
};

// Returns the mode's row; FP32's for UNSPECIFIED, AUTO and modes of newer clients.
const ModeTraits& TraitsOf(training::v1::PrecisionMode mode);

bool IsReducedPrecision(training::v1::PrecisionMode mode);
// Returns true if steps in this mode use a loss scale.
bool HasLossScale(training::v1::PrecisionMode mode);

// Returns the format of the mode's layers for metric labels: "fp32", "fp16" or "bf16".
std::string PrecisionLabel(training::v1::PrecisionMode mode);

}  // namespace genesis
