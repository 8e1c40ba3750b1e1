#include "config/precision/mode.h"

#include <algorithm>
#include <iterator>

namespace genesis {

using training::v1::PrecisionMode;

const ModeTraits& TraitsOf(PrecisionMode mode) {
  using enum NumberFormat;
  static constexpr ModeTraits kModes[] = {
      {training::v1::PRECISION_MODE_FP32, kFp32, kFp32, /*scaled=*/false},
      {training::v1::PRECISION_MODE_FP16, kFp16, kFp16, /*scaled=*/true},
      {training::v1::PRECISION_MODE_BF16, kBf16, kBf16, /*scaled=*/false},
      {training::v1::PRECISION_MODE_MIXED_FP16, kFp32, kFp16, /*scaled=*/true},
      {training::v1::PRECISION_MODE_MIXED_BF16, kFp32, kBf16, /*scaled=*/false},
  };
  const auto* const found = std::find_if(std::begin(kModes), std::end(kModes),
                                         [&](const ModeTraits& row) { return row.mode == mode; });
  return found != std::end(kModes) ? *found : kModes[0];
}

bool IsReducedPrecision(PrecisionMode mode) { return mode != training::v1::PRECISION_MODE_FP32; }

bool HasLossScale(PrecisionMode mode) { return TraitsOf(mode).scaled; }

std::string PrecisionLabel(PrecisionMode mode) {
  switch (TraitsOf(mode).layers) {
    case NumberFormat::kFp16:
      return "fp16";
    case NumberFormat::kBf16:
      return "bf16";
    case NumberFormat::kFp32:
      break;
  }
  return "fp32";
}

}  // namespace genesis
