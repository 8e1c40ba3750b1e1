#include "trainer/distributed/weight_check.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/files/crc32c.h"
#include "base/text/text.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

// Maximum number of names in a message.
constexpr size_t kMaxNames = 16;
constexpr size_t kDigits = 8;

// Returns eight hexadecimal digits, the CRC-32C, for each weight.
std::string Checksums(const std::vector<std::pair<std::string, at::Tensor>>& weights) {
  std::string text;
  for (const auto& [name, tensor] : weights) {
    const at::Tensor host = tensor.detach().cpu();
    const at::Tensor dense = host.is_non_overlapping_and_dense() ? host : host.contiguous();
    absl::StrAppendFormat(&text, "%08x", Crc32c(0, dense.const_data_ptr(), dense.nbytes()));
  }
  return text;
}

// Returns the most frequent checksums; if there is a tie, rank 0's.
std::string Majority(const std::vector<std::string>& all) {
  std::map<std::string, int> count;
  for (const std::string& one : all) ++count[one];
  std::string most = all.front();
  for (const auto& [one, ranks] : count) {
    if (ranks > count[most]) most = one;
  }
  return most;
}

}  // namespace

void RequireSameWeights(RankGroup& ranks, int64_t step,
                        const std::vector<std::pair<std::string, at::Tensor>>& weights) {
  const std::vector<std::string> all = ranks.FromAll(Checksums(weights));
  const std::string most = Majority(all);
  std::vector<int> differ;
  size_t first = weights.size();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == most) continue;
    differ.push_back(static_cast<int>(rank));
    const auto at = std::mismatch(most.begin(), most.end(), all[rank].begin(), all[rank].end());
    first = std::min(first, static_cast<size_t>(at.first - most.begin()) / kDigits);
  }
  if (differ.empty()) return;
  const bool two = all.size() == 2;
  const size_t shown = std::min(differ.size(), kMaxNames);
  const std::string who = absl::StrCat(
      differ.size() == 1 ? "rank " : "ranks ",
      absl::StrJoin(differ.begin(), differ.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < differ.size() ? absl::StrCat(" and ", differ.size() - shown, " more") : "");
  throw RunFailure{
      training::v1::FAILURE_CAUSE_DEVICE,
      absl::StrCat("after step ", step, " the weights of ", two ? "rank 0 and rank 1" : who,
                   two ? " differ" : " differ from those of the other ranks", ", first in ",
                   first < weights.size() ? OneLine(weights[first].first, kMaxNameBytes) : "none",
                   " (distributed.weight_check_every_steps): ranks make the same updates, so ",
                   two ? "one of the two has" : "it has",
                   " a memory, processor or device at fault; test that host, and go on from the "
                   "last checkpoint without it")};
}

}  // namespace genesis
