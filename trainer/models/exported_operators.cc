#include "trainer/models/exported_operators.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

// By name, sorted; each with all its overloads, and with its form that writes into its first
// argument. Printed from the list by which genesis.export looks for what a worker would refuse.
constexpr absl::string_view kOperators[] = {
#include "trainer/models/exported_operator_names.inc"
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
