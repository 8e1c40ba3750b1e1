#include "trainer/models/base/alignment.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/models/base/dataset_fields.h"

namespace genesis {
namespace {

constexpr int64_t kMultiple = 8;
constexpr size_t kMax = 16;

// Returns the sizes not divisible by 8 of rows and columns, or of output and input channels.
std::vector<int64_t> Odd(const torch::Tensor& weight) {
  std::vector<int64_t> odd;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t size = weight.size(i);
    if (size % kMultiple != 0 && std::find(odd.begin(), odd.end(), size) == odd.end()) {
      odd.push_back(size);
    }
  }
  return odd;
}

// Embeddings are looked up rather than multiplied, unless an output layer shares them.
bool IsMultiplied(const Model& model, const std::string& name) {
  if (!absl::EndsWith(name, "_embedding.weight")) return true;
  const auto tied = model.tied();
  return std::any_of(tied.begin(), tied.end(),
                     [&name](const auto& pair) { return pair.second == name; });
}

}  // namespace

std::vector<std::string> AlignmentWarnings(const Model& model) {
  std::vector<std::string> warnings;
  for (const auto& [name, weight] : model.parameters()) {
    if (weight.dim() < 2 || !IsMultiplied(model, name)) continue;
    const std::vector<int64_t> odd = Odd(weight);
    if (odd.empty()) continue;
    warnings.push_back(absl::StrCat(
        name, " is ", SizesText(weight.sizes().vec()), ": ", absl::StrJoin(odd, " and "),
        odd.size() == 1 ? " is not a multiple of " : " are not multiples of ", kMultiple));
  }
  if (warnings.size() > kMax) {
    const size_t more = warnings.size() - kMax + 1;
    warnings.resize(kMax - 1);
    warnings.push_back(
        absl::StrCat("and ", more, " more with sizes that are not multiples of ", kMultiple));
  }
  return warnings;
}

std::string BatchWarning(int64_t batch_size) {
  const int64_t below = batch_size / kMultiple * kMultiple;
  if (below == batch_size) return "";
  return absl::StrCat("training.batch_size is ", batch_size, ": ", batch_size,
                      " is not a multiple of ", kMultiple, "; with ",
                      below > 0 ? absl::StrCat(below, " or ") : "", below + kMultiple,
                      " no part of the matrix units is idle");
}

}  // namespace genesis
