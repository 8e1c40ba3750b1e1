#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"

namespace genesis {

// Returns the mode of the job's newest step; before the first step, the mode of the attempt.
training::v1::PrecisionMode ModeOf(const training::v1::Job& job);

// Returns the fraction of reduced-precision steps that overflowed, 0 to 1; nullopt if none ran.
std::optional<double> OverflowRate(const training::v1::Progress& progress);

// Returns the job's metrics at `now`. `device_memory`: bytes that its worker reported last.
training::v1::HistoryRow MakeHistoryRow(const training::v1::Job& job, bool fp16_enabled,
                                        std::optional<int64_t> device_memory, absl::Time now);

}  // namespace genesis
