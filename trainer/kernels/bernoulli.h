#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace genesis {

// aten::bernoulli_.float: sets each element of `self` to 1 with `probability`, otherwise to 0, as
// for dropout masks. Numbers and final generator state are bitwise those of LibTorch. The state
// of the Mersenne Twister is updated and compared sixteen or eight words at a time. For dense
// tensors of bool, FP32 and BF16 if HasAvx2; others are left to LibTorch.
at::Tensor& Bernoulli(at::Tensor& self, double probability, std::optional<at::Generator> generator);

}  // namespace genesis
