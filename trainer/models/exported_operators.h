#pragma once

#include "absl/strings/string_view.h"

namespace genesis {

// Whether the graph of an exported module may name it: "torch.ops.aten.addmm.default", or
// "_operator.mul" for sizes. Allowed are operators that compute tensors of tensors: none that reads
// files, reaches memory by an address, or runs something else.
bool IsAllowedOperator(absl::string_view target);

}  // namespace genesis
