#include "trainer/models/exported_operators.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/strip.h"

namespace genesis {
namespace {

// By name, sorted; each with all its overloads, and with its form that writes into its first
// argument. Printed from the list by which genesis.export looks for what a worker would refuse.
constexpr absl::string_view kOperators[] = {
#include "trainer/models/exported_operator_names.inc"
};

// Arithmetic of sizes.
constexpr absl::string_view kSizeOperators[] = {
    "add", "and_", "eq", "floordiv", "ge",  "getitem", "gt",  "le",      "lt",
    "mod", "mul",  "ne", "neg",      "or_", "pow",     "sub", "truediv",
};

template <size_t kCount>
bool Contains(const absl::string_view (&names)[kCount], absl::string_view name) {
  return std::binary_search(std::begin(names), std::end(names), name);
}

static_assert(std::is_sorted(std::begin(kOperators), std::end(kOperators)));
static_assert(std::is_sorted(std::begin(kSizeOperators), std::end(kSizeOperators)));

}  // namespace

bool IsAllowedOperator(absl::string_view target) {
  if (absl::ConsumePrefix(&target, "_operator.")) return Contains(kSizeOperators, target);
  if (!absl::ConsumePrefix(&target, "torch.ops.aten.")) return false;
  absl::string_view name = target.substr(0, target.find('.'));
  if (Contains(kOperators, name)) return true;
  return absl::ConsumeSuffix(&name, "_") && Contains(kOperators, name);
}

}  // namespace genesis
