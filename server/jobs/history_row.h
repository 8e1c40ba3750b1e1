#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"

namespace genesis {

// What the newest step of a job ran in; before it, what the attempt was given.
training::v1::PrecisionMode ModeOf(const training::v1::Job& job);

// How the job does at `now`, for the history. `device_memory`: what its worker reported last.
training::v1::HistoryRow MakeHistoryRow(const training::v1::Job& job, bool fp16_enabled,
                                        std::optional<int64_t> device_memory, absl::Time now);

}  // namespace genesis
