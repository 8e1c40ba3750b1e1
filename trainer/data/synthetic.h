#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/transition_rows.h"

// Synthetic data for benchmarks and fault injection. Every number is a pure function of the
// specification, bitwise the same on every machine: it uses splitmix64, and no C library function
// that rounds differently elsewhere.
namespace genesis {

// Returns episodes of x' = A x + B u with |A| < 1 and actions u drawn uniformly from [-1, 1), with
// observation tanh(C x) and reward 1 - mean(x'^2). Rows are recomputed at each read.
std::unique_ptr<TransitionRows> MakeTransitions(const training::v1::SyntheticTrajectories& spec,
                                                uint64_t seed);

// Returns tokens that each have four possible followers, with probabilities 1/2, 1/4, 1/8 and 1/8.
// A model can reach 1.75 bits per token at best if the vocabulary is large enough for distinct
// followers. RESOURCE_EXHAUSTED if the tokens exceed the limit.
absl::StatusOr<std::unique_ptr<Dataset>> MakeTokens(const training::v1::SyntheticTokens& spec,
                                                    const training::v1::TransformerSpec& model,
                                                    uint64_t seed, double holdout_fraction,
                                                    int64_t memory_limit_bytes);

// Returns maps: image [1, S, S] is the strongest received power in [-1, 1], which falls with the
// logarithm of the distance and with each wall in between; condition [2, S, S] marks walls, then
// transmitters, by 1. Maps that fit the memory limit are kept; otherwise Gather recomputes them.
std::unique_ptr<Dataset> MakeMaps(const training::v1::SyntheticMaps& spec, uint64_t seed,
                                  double holdout_fraction, int64_t memory_limit_bytes);

}  // namespace genesis
