#include "trainer/kernels/math_functions.h"

#include <torch/torch.h>

namespace genesis {

void ChooseMathFunctions() {
  // IMPLEMENT_VML_MKL in ATen/cpu/vml.h. One element, so that one thread computes.
  constexpr at::Tensor (*kFunctions[])(const at::Tensor&) = {
      at::acos, at::asin, at::atan,  at::cos, at::erf,  at::erfc, at::erfinv, at::exp,
      at::log,  at::log2, at::log10, at::sin, at::sqrt, at::tan,  at::tanh,   at::trunc};
  const at::NoGradGuard no_gradients;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor one = at::ones({1}, type);
    for (const auto function : kFunctions) function(one);
  }
}

}  // namespace genesis
