#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

namespace genesis {

// aten::silu, aten::gelu and their gradients, for FP32 and BF16 (computed in FP32) of any dense
// layout. LibTorch's take a tanh or an exponential of 1 unit in the last place for each element;
// these take one exponential of 2 (x / (1 + e^-x) is SiLU, and GELU's tanh is such a quotient too),
// which is four times as fast. GELU by the error function, out of tanh's reach, and all else stay
// with LibTorch. Where they agree: torch.nn.functional.silu, and gelu with approximate="tanh".
at::Tensor Silu(const at::Tensor& input);
at::Tensor SiluGradient(const at::Tensor& gradient, const at::Tensor& input);
at::Tensor Gelu(const at::Tensor& input, c10::string_view approximate);
at::Tensor GeluGradient(const at::Tensor& gradient, const at::Tensor& input,
                        c10::string_view approximate);

}  // namespace genesis
