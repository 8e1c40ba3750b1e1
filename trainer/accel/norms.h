#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace genesis {

// aten::_foreach_norm: of each tensor the square root of its sum of squares, in FP32 (which `type`
// may ask for). For FP32 and BF16 tensors of any dense layout. LibTorch's takes one tensor after
// the other, each by one thread; this one shares parts of all of them among threads, sums a part in
// FP32 and parts in double precision: the same for any number of threads. Other orders, types and
// layouts stay with LibTorch.
std::vector<at::Tensor> Norms(at::TensorList tensors, const at::Scalar& order,
                              std::optional<at::ScalarType> type);

}  // namespace genesis
