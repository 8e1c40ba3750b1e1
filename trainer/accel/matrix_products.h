#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace genesis {

// Side of the smallest square matrices that oneDNN multiplies. A product of fewer multiplications
// MKL has made by the time that oneDNN has found how to, some 10 microseconds.
inline constexpr int64_t kLeastOneDnnSide = 128;

// aten::mm, aten::mm.out, aten::addmm and aten::addmm.out: FP32 matrices on the CPU are multiplied
// by oneDNN. Products too small for it, and all other kinds, stay with LibTorch's own.
at::Tensor Multiply(const at::Tensor& left, const at::Tensor& right);
at::Tensor& MultiplyTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out);
at::Tensor MultiplyAndAdd(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                          const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor& MultiplyAndAddTo(const at::Tensor& addend, const at::Tensor& left,
                             const at::Tensor& right, const at::Scalar& beta,
                             const at::Scalar& alpha, at::Tensor& out);

}  // namespace genesis
