#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/models/model.h"

namespace genesis {

// A BatchMemory is a batch whose values are still to come: its tensors, and where Dataset::Gather
// puts the values of each. The batch owns what the targets point to.
struct BatchMemory {
  Batch batch;
  std::vector<std::byte*> targets;
};

// Memory for some examples on the CPU. INTERNAL when two fields have one name, for a tensor would
// stand for both.
absl::StatusOr<BatchMemory> MakeBatchMemory(const Dataset& dataset, int64_t examples, bool pinned);

// Some examples on the CPU, outside of training: to try a model on.
absl::StatusOr<Batch> SampleBatch(const Dataset& dataset, const std::vector<int64_t>& examples);

}  // namespace genesis
