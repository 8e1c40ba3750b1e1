#include "trainer/kernels/convolutions.h"

#include <ATen/ATen.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <utility>

#include "trainer/kernels/bf16_in_fp32.h"
#include "trainer/kernels/depthwise_convolution.h"

namespace genesis {

at::Tensor Convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  if (!InFp32(input, weight)) {
    return at::compositeexplicitautograd::convolution(input, weight, bias, stride, padding,
                                                      dilation, transposed, output_padding, groups);
  }
  const bool has_bias = bias.has_value() && bias->defined();
  return Rounded(at::compositeexplicitautograd::convolution(
      Wide(input), Wide(weight), has_bias ? std::optional(Wide(*bias)) : std::nullopt, stride,
      padding, dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionGradient(
    const at::Tensor& out_gradient, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  const bool widen = InFp32(out_gradient, input, weight);
  const auto wide = [&](const at::Tensor& tensor) { return widen ? Wide(tensor) : tensor; };
  auto gradients = at::compositeexplicitautograd::convolution_backward(
      wide(out_gradient), wide(input), wide(weight), bias_sizes, stride, padding, dilation,
      transposed, output_padding, groups, wanted);
  if (!widen) return gradients;
  const auto narrow = [](const at::Tensor& gradient) {
    return gradient.defined() ? Rounded(gradient) : gradient;
  };
  return {narrow(std::get<0>(gradients)), narrow(std::get<1>(gradients)),
          narrow(std::get<2>(gradients))};
}

namespace {

// Uses the depthwise kernels if faster, else the dispatcher, whose kernels run BF16 in FP32.
at::Tensor CompiledConvolution(const at::Tensor& input, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias,
                               const ConvolutionSettings& settings,
                               at::IntArrayRef output_padding) {
  if (UsesOwnKernels() && GainsOfDepthwise(input, weight, settings).result) {
    return DepthwiseConvolution(input, weight, bias, settings);
  }
  return at::convolution(input, weight, bias, settings.stride, settings.padding, settings.dilation,
                         settings.transposed, output_padding, settings.groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> CompiledConvolutionGradient(
    const at::Tensor& out_gradient, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes, const ConvolutionSettings& settings,
    at::IntArrayRef output_padding, std::array<bool, 3> wanted) {
  const DepthwiseGains gains =
      UsesOwnKernels() ? GainsOfDepthwise(input, weight, settings) : DepthwiseGains{};
  const std::array<bool, 3> left = {wanted[0] && !gains.result, wanted[1] && !gains.weight_gradient,
                                    wanted[2] && !gains.weight_gradient};
  std::tuple<at::Tensor, at::Tensor, at::Tensor> made;
  if (left[0] || left[1] || left[2]) {
    made = at::convolution_backward(out_gradient, input, weight, bias_sizes, settings.stride,
                                    settings.padding, settings.dilation, settings.transposed,
                                    output_padding, settings.groups, left);
  }
  if (wanted[0] && gains.result) {
    std::get<0>(made) = DepthwiseInputGradient(out_gradient, input, weight, settings);
  }
  if ((wanted[1] || wanted[2]) && gains.weight_gradient) {
    auto sums = DepthwiseWeightGradient(out_gradient, input, weight, settings);
    if (wanted[1]) std::get<1>(made) = std::move(sums.weight);
    if (wanted[2]) std::get<2>(made) = std::move(sums.bias);
  }
  return made;
}

}  // namespace
}  // namespace genesis

// The entry points for compiled steps, which bypass the dispatcher: see matrix_products.cc.
// Compiled steps do not sum in the order of eager steps, so depthwise convolutions need not
// either.
AOTITorchError aoti_torch_cpu_convolution(
    AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias, const int64_t* stride,
    int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation,
    int64_t dilation_len_, int32_t transposed, const int64_t* output_padding,
    int64_t output_padding_len_, int64_t groups, AtenTensorHandle* ret0) {
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    const genesis::ConvolutionSettings settings = {
        at::IntArrayRef(stride, stride_len_), at::IntArrayRef(padding, padding_len_),
        at::IntArrayRef(dilation, dilation_len_), transposed != 0, groups};
    *ret0 = torch::aot_inductor::new_tensor_handle(genesis::CompiledConvolution(
        *tensor(input), *tensor(weight), torch::aot_inductor::pointer_to_optional<at::Tensor>(bias),
        settings, at::IntArrayRef(output_padding, output_padding_len_)));
  });
}

AOTITorchError aoti_torch_cpu_convolution_backward(
    AtenTensorHandle grad_output, AtenTensorHandle input, AtenTensorHandle weight,
    const int64_t** bias_sizes, int64_t bias_sizes_len_, const int64_t* stride, int64_t stride_len_,
    const int64_t* padding, int64_t padding_len_, const int64_t* dilation, int64_t dilation_len_,
    int32_t transposed, const int64_t* output_padding, int64_t output_padding_len_, int64_t groups,
    const int32_t* output_mask, int64_t /*output_mask_len_*/, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1, AtenTensorHandle* ret2) {
  using torch::aot_inductor::new_tensor_handle;
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    at::OptionalIntArrayRef sizes;
    if (bias_sizes != nullptr) sizes = at::IntArrayRef(*bias_sizes, bias_sizes_len_);
    const genesis::ConvolutionSettings settings = {
        at::IntArrayRef(stride, stride_len_), at::IntArrayRef(padding, padding_len_),
        at::IntArrayRef(dilation, dilation_len_), transposed != 0, groups};
    auto [to_input, to_weight, to_bias] = genesis::CompiledConvolutionGradient(
        *tensor(grad_output), *tensor(input), *tensor(weight), sizes, settings,
        at::IntArrayRef(output_padding, output_padding_len_),
        {output_mask[0] != 0, output_mask[1] != 0, output_mask[2] != 0});
    // A handle is null if the step does not read that gradient.
    if (ret0 != nullptr) *ret0 = new_tensor_handle(std::move(to_input));
    if (ret1 != nullptr) *ret1 = new_tensor_handle(std::move(to_weight));
    if (ret2 != nullptr) *ret2 = new_tensor_handle(std::move(to_bias));
  });
}
