#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

namespace genesis {

// aten::silu, aten::gelu and their gradients, for FP32 and BF16 (computed in FP32) of any dense
// layout, as torch.nn.functional.silu and gelu with approximate="tanh" define them. Each element
// needs one exponential with an error of 2 units in the last place; GELU's tanh is computed from it
// too. LibTorch uses a tanh with an error of 1 unit, which is four times the work. GELU with the
// error function and all other types are left to LibTorch.
at::Tensor Silu(const at::Tensor& input);
at::Tensor SiluGradient(const at::Tensor& gradient, const at::Tensor& input);
at::Tensor Gelu(const at::Tensor& input, c10::string_view approximate);
at::Tensor GeluGradient(const at::Tensor& gradient, const at::Tensor& input,
                        c10::string_view approximate);

}  // namespace genesis
