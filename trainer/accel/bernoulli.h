#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace genesis {

// aten::bernoulli_.float: each element of `self` 1 with this probability, else 0, as dropout draws
// its masks. The numbers are those of LibTorch to the bit, and the generator is left as LibTorch
// leaves it; the Mersenne Twister's state is renewed and compared sixteen words at once, or eight.
// Dense tensors of bool, FP32 and BF16 where HasAvx2; others stay with LibTorch.
at::Tensor& Bernoulli(at::Tensor& self, double probability, std::optional<at::Generator> generator);

}  // namespace genesis
