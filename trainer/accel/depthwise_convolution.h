#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace genesis {

// Convolutions that take each channel by itself: as many groups as channels, and as many channels
// of the result. They have one or two dimensions and are FP32 or BF16 on the CPU; BF16 is computed
// in FP32 and rounded once. The order of memory is what at::convolution and its gradient give.
//
// LibTorch leaves them to oneDNN, which has no loops for many of them and writes every window out
// as a row of a matrix: gradients of weights take 5 to 30 times as long as here.
struct ConvolutionSettings {
  at::IntArrayRef stride, padding, dilation;
  bool transposed;
  int64_t groups;
};

// Where the functions below are faster than LibTorch's. All false for a convolution that is not
// depthwise, or whose processor has no AVX2.
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

// The same to the bit for any number of threads.
DepthwiseWeightGradients DepthwiseWeightGradient(const at::Tensor& out_gradient,
                                                 const at::Tensor& input, const at::Tensor& weight,
                                                 const ConvolutionSettings& settings);

}  // namespace genesis
