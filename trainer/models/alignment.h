#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/models/model.h"

namespace genesis {

// The matrices and convolutions of a model with a size that is no multiple of 8, which the matrix
// units of a GPU and of a CPU take in reduced precision only with padding: "reward_head.2.weight is
// [1, 256]: 1 is no multiple of 8". At most 16 entries; where there are more, the last says how
// many. Advice, not a fault: an output of one column has to have one.
std::vector<std::string> AlignmentWarnings(const Model& model);

// The same for the examples of a batch: "training.batch_size is 30: 30 is not a multiple of 8;
// ...". Empty where it is one.
std::string BatchWarning(int64_t batch_size);

}  // namespace genesis
