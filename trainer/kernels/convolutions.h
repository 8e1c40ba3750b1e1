#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

namespace genesis {

// aten::convolution and aten::convolution_backward. BF16 on the CPU is computed in FP32 and rounded
// once if MultipliesBf16InFp32 (own_kernels.h). All other kinds are left to LibTorch.
at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups);

// Returns the gradients of input, weight and bias that `wanted` selects.
std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionGradient(
    const at::Tensor& out_gradient, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted);

}  // namespace genesis
