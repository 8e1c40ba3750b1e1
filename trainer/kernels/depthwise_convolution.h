#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace genesis {

// Depthwise convolutions: as many groups and output channels as input channels. One or two
// dimensions, FP32 or BF16 on the CPU; BF16 is computed in FP32 and rounded once. The memory order
// is that of at::convolution and its gradient.
//
// LibTorch uses oneDNN, which lacks loops for many of them and expands every window to a row of a
// matrix: weight gradients take 5 to 30 times as long as here.
struct ConvolutionSettings {
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  int64_t groups;
};

// The functions below that are faster than LibTorch's for an input. None if the convolution is not
// depthwise or the processor has no AVX2.
struct DepthwiseGains {
  bool result = false;           // DepthwiseConvolution and DepthwiseInputGradient.
  bool weight_gradient = false;  // DepthwiseWeightGradient.
};

DepthwiseGains GainsOfDepthwise(const at::Tensor& input, const at::Tensor& weight,
                                const ConvolutionSettings& settings);

at::Tensor DepthwiseConvolution(const at::Tensor& input, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias,
                                const ConvolutionSettings& settings);

at::Tensor DepthwiseInputGradient(const at::Tensor& out_gradient, const at::Tensor& input,
                                  const at::Tensor& weight, const ConvolutionSettings& settings);

struct DepthwiseWeightGradients {
  at::Tensor weight, bias;
};

// Returns gradients that are bitwise the same for any number of threads.
DepthwiseWeightGradients DepthwiseWeightGradient(const at::Tensor& out_gradient,
                                                 const at::Tensor& input, const at::Tensor& weight,
                                                 const ConvolutionSettings& settings);

}  // namespace genesis
