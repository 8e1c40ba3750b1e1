#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

namespace genesis {

// aten::native_group_norm_backward: the gradients of `input` [N, C, H, W], and of weight and bias
// [C], from the output's gradient, and `mean` and `rstd` [N, groups] of the forward pass.
//
// For FP32 and BF16 maps in channels_last with a weight and a multiple of 16 channels. FP32 sums.
// LibTorch sums by group, without vector instructions if a group is narrower than a vector. The
// kernel here sums by channel and then channels to groups, so no width of a group is slow. The
// result does not depend on the number of threads. All other inputs are left to LibTorch.
std::tuple<at::Tensor, at::Tensor, at::Tensor> GroupNormGradient(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight, int64_t count,
    int64_t channels, int64_t pixels, int64_t groups, std::array<bool, 3> wanted);

}  // namespace genesis
