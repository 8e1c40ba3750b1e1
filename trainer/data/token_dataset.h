#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// Opens a headerless file of tokens: examples of context_length + 1 tokens, one every
// context_length tokens, the last of them held out. Every token is compared with the model's
// vocabulary once, when opened. Tokens that fit the memory limit are kept, as wide as in the file;
// else Gather reads them.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(const training::v1::TokenFileSpec& spec,
                                                    const training::v1::TransformerSpec& model,
                                                    int64_t memory_limit_bytes);

// The same of tokens that were made: `tokens` of `width` bytes each.
absl::StatusOr<std::unique_ptr<Dataset>> TokensInMemory(std::string tokens, int64_t width,
                                                        const training::v1::TransformerSpec& model,
                                                        double holdout_fraction);

}  // namespace genesis
