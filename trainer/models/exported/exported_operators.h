#pragma once

#include "absl/strings/string_view.h"

namespace genesis {

// Returns whether the graph of an exported module may contain this operator:
// "torch.ops.aten.addmm.default", or "_operator.mul" for sizes. Allowed operators compute tensors
// from tensors; none reads files, accesses memory by address, or runs other code.
bool IsAllowedOperator(absl::string_view target);

}  // namespace genesis
