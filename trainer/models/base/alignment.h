#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/models/base/model.h"

namespace genesis {

// Lists the matrices and convolutions of a model with a size that is not a multiple of 8, which the
// matrix units of GPUs and CPUs have to pad in reduced precision: "reward_head.2.weight is [1,
// 256]: 1 is not a multiple of 8". At most 16 entries; if there are more, the last one counts the
// rest. The entries are advice, not errors, because a head with one output must have such a size.
std::vector<std::string> AlignmentWarnings(const Model& model);

// Returns such a warning for a batch: "training.batch_size is 30: 30 is not a multiple of 8; ...";
// empty if the size is a multiple.
std::string BatchWarning(int64_t batch_size);

}  // namespace genesis
