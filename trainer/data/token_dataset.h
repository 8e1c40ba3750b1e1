#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// Opens a headerless file of tokens. Examples have context_length + 1 tokens and begin every
// context_length tokens; the last are held out. Opening checks every token once against the model's
// vocabulary. Tokens that fit the memory limit are kept with the width of the file; otherwise
// Gather reads them.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const training::v1::TokenFileSpec& spec,
                                                    const training::v1::TransformerSpec& model,
                                                    int64_t memory_limit_bytes);

// Returns a dataset of synthetic tokens: `tokens` has `width` bytes per token.
absl::StatusOr<std::unique_ptr<Dataset>> TokensInMemory(std::string tokens, int64_t width,
                                                        const training::v1::TransformerSpec& model,
                                                        double holdout_fraction);

}  // namespace genesis
