#pragma once

#include <ATen/ATen.h>

#include "trainer/kernels/own_kernels.h"

// Functions of the kernels that compute products of BF16 in FP32 and round them once.
namespace genesis {

inline bool IsBf16OfCpu(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 && tensor.layout() == at::kStrided &&
         tensor.device().is_cpu();
}

// Returns whether to compute a product of these tensors in FP32.
template <typename... Tensors>
bool InFp32(const Tensors&... tensors) {
  return MultipliesBf16InFp32() && (IsBf16OfCpu(tensors) && ...);
}

inline at::Tensor Wide(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

inline at::Tensor Rounded(const at::Tensor& product) { return product.to(at::kBFloat16); }

inline at::Tensor& Rounded(const at::Tensor& product, at::Tensor& out) {
  if (out.sizes() != product.sizes()) out.resize_(product.sizes());
  return out.copy_(product);
}

}  // namespace genesis
