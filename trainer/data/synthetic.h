#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/transition_rows.h"

// Data made from a seed, for benchmarks and rehearsals. Every number is a pure function of the
// specification, to the bit, on every machine: splitmix64 for chance, and no function of the C
// library that rounds differently elsewhere.
namespace genesis {

// Episodes of x' = A x + B u with |A| < 1 and actions u drawn evenly from [-1, 1); observation
// tanh(C x), reward 1 - mean(x'^2). Rows are made again whenever they are read.
std::unique_ptr<TransitionRows> MakeTransitions(const training::v1::SyntheticTrajectories& spec,
                                                uint64_t seed);

// Each token has four followers: the first comes half of the time, the second a quarter, the
// others an eighth each: 1.75 bits per token is the best that a model can do, when the vocabulary
// is large enough that followers differ. RESOURCE_EXHAUSTED when the tokens take more than the
// limit.
absl::StatusOr<std::unique_ptr<Dataset>> MakeTokens(const training::v1::SyntheticTokens& spec,
                                                    const training::v1::TransformerSpec& model,
                                                    uint64_t seed, double holdout_fraction,
                                                    int64_t memory_limit_bytes);

// Fields image [1, S, S]: the strongest received power in [-1, 1], which falls with the logarithm
// of the distance and with each wall between; condition [2, S, S]: 1 where a wall is, 1 where a
// transmitter is. Maps that fit the memory limit are kept; others are made again at each Gather.
std::unique_ptr<Dataset> MakeMaps(const training::v1::SyntheticMaps& spec, uint64_t seed,
                                  double holdout_fraction, int64_t memory_limit_bytes);

}  // namespace genesis
