#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/data/splitmix.h"
#include "trainer/data/synthetic.h"
#include "trainer/data/token_dataset.h"

namespace genesis {
namespace {

// Returns 0 with probability 1/2, 1 with 1/4, 2 and 3 with 1/8 each.
uint64_t Choice(uint64_t random) {
  const uint64_t eighth = random >> 61;
  if (eighth < 4) return 0;
  return eighth < 6 ? 1 : eighth - 4;
}

template <typename Token>
std::string Chain(int64_t size, uint64_t vocabulary, uint64_t seed) {
  std::string bytes(static_cast<size_t>(size) * sizeof(Token), '\0');
  SplitMix64 random(seed, 0);
  uint64_t token = random.Below(vocabulary);
  for (int64_t i = 0; i < size; ++i) {
    const auto narrow = static_cast<Token>(token);
    bytes.replace(static_cast<size_t>(i) * sizeof(Token), sizeof(Token),
                  reinterpret_cast<const char*>(&narrow), sizeof(Token));
    token = SplitMix64(seed, 1 + 4 * token + Choice(random.Next())).Below(vocabulary);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeTokens(const training::v1::SyntheticTokens& spec,
                                                    const training::v1::TransformerSpec& model,
                                                    uint64_t seed, double holdout_fraction,
                                                    int64_t memory_limit_bytes) {
  const int64_t vocabulary =
      spec.vocabulary_size() > 0 ? spec.vocabulary_size() : model.vocabulary_size();
  const int64_t width = vocabulary <= 65536 ? 2 : 4;
  if (spec.size() > memory_limit_bytes / width) {
    return absl::ResourceExhaustedError(
        absl::StrCat("dataset.synthetic: tokens.size is ", spec.size(), "; accepted: at most ",
                     memory_limit_bytes / width, ", because they are made in memory, ", width,
                     " bytes each, and dataset.memory_limit_bytes is ", memory_limit_bytes));
  }
  const auto tokens = static_cast<uint64_t>(vocabulary);
  std::string chain = width == 2 ? Chain<uint16_t>(spec.size(), tokens, seed)
                                 : Chain<uint32_t>(spec.size(), tokens, seed);
  return TokensInMemory(std::move(chain), width, model, holdout_fraction);
}

}  // namespace genesis
