#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace genesis {

// aten::_foreach_norm: the square root of each tensor's sum of squares, in FP32, for tensors of any
// dense layout in FP32 or, if `type` is FP32, in BF16. LibTorch processes one tensor after the
// other, each in one thread. The kernel here distributes parts of all tensors over threads, sums a
// part in FP32 and parts in double, so the result does not depend on the number of threads. Other
// orders, types and layouts are left to LibTorch.
std::vector<at::Tensor> Norms(at::TensorList tensors, const at::Scalar& order,
                              std::optional<at::ScalarType> type);

}  // namespace genesis
