#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/models/model.h"

namespace genesis {

// Some examples on the CPU, outside of training: to try a model on.
absl::StatusOr<Batch> SampleBatch(const Dataset& dataset, const std::vector<int64_t>& examples);

}  // namespace genesis
