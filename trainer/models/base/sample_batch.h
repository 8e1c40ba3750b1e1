#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/models/base/model.h"

namespace genesis {

// A BatchMemory is a batch whose values are not loaded yet: its tensors, and the destinations for
// Dataset::Gather. The batch owns the memory of the targets.
struct BatchMemory {
  Batch batch;
  std::vector<std::byte*> targets;
};

// Allocates memory for some examples on the CPU. INTERNAL if two fields have one name, because they
// would share a tensor.
absl::StatusOr<BatchMemory> MakeBatchMemory(const Dataset& dataset, int64_t examples, bool pinned);

// Returns some examples on the CPU, outside of training, to try a model with.
absl::StatusOr<Batch> SampleBatch(const Dataset& dataset, const std::vector<int64_t>& examples);

}  // namespace genesis
