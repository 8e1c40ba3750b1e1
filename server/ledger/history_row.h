#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"

namespace genesis {

// The mode of a job's newest step; before it, the mode that the attempt was given.
training::v1::PrecisionMode ModeOf(const training::v1::Job& job);

// Part of the steps in reduced precision that overflowed, 0 to 1; nullopt without such a step.
std::optional<double> OverflowRate(const training::v1::Progress& progress);

// How the job does at `now`, for the history. `device_memory`: what its worker reported last.
training::v1::HistoryRow MakeHistoryRow(const training::v1::Job& job, bool fp16_enabled,
                                        std::optional<int64_t> device_memory, absl::Time now);

}  // namespace genesis
