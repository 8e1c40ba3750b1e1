#pragma once

#include <cstdint>

#include "trainer/precision/format.h"
#include "trainer/precision/pair_evidence.h"
#include "trainer/run/train_step.h"

namespace genesis {

// Loses the batch of a step once more, in its format and in FP32, with the weights as they are now
// and the same random numbers: two forward passes, which leave weights, buffers, gradients and
// generators as they were. `rehearsals` act as they did in `step`.
PairedLoss ComparePrecision(const StepParts& parts, const StepFormat& format,
                            const StepEvidence& evidence, int64_t step);

// Makes it what rank 0 found.
void ShareFromFirst(RankGroup& ranks, PairedLoss& pair);

}  // namespace genesis
