#include "trainer/models/exported/exported_operators.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

// Sorted by name. Each entry allows all overloads, and the variant that writes to its first
// argument. Generated from the list with which genesis.export checks a graph in advance.
constexpr absl::string_view kOperators[] = {
#include "trainer/models/exported/exported_operator_names.inc"
};

bool Contains(absl::string_view name) {
  return std::binary_search(std::begin(kOperators), std::end(kOperators), name);
}

static_assert(std::is_sorted(std::begin(kOperators), std::end(kOperators)));

}  // namespace

bool IsAllowedOperator(absl::string_view target) {
  if (absl::StartsWith(target, "_operator.")) return Contains(target);
  if (!absl::ConsumePrefix(&target, "torch.ops.aten.")) return false;
  absl::string_view name = target.substr(0, target.find('.'));
  if (Contains(name)) return true;
  return absl::ConsumeSuffix(&name, "_") && Contains(name);
}

}  // namespace genesis
