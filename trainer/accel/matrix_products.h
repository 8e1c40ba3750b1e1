#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace genesis {

// Side of the smallest square matrices that oneDNN multiplies. A product of fewer multiplications
// MKL has made by the time that oneDNN has found how to, some 10 microseconds.
inline constexpr int64_t kLeastOneDnnSide = 128;

// aten::mm, addmm, bmm and baddbmm, and their forms that write to a given tensor.
//
// FP32 matrices on the CPU are multiplied by oneDNN where MultipliesByOneDnn, BF16 ones in FP32,
// and rounded once, where MultipliesBf16InFp32 (own_kernels.h). Products too small for oneDNN, and
// all other kinds, stay with LibTorch's own.
at::Tensor Multiply(const at::Tensor& left, const at::Tensor& right);
at::Tensor& MultiplyTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out);
at::Tensor MultiplyAndAdd(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                          const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor& MultiplyAndAddTo(const at::Tensor& addend, const at::Tensor& left,
                             const at::Tensor& right, const at::Scalar& beta,
                             const at::Scalar& alpha, at::Tensor& out);

// Batches of matrices: one product for each pair.
at::Tensor MultiplyEach(const at::Tensor& left, const at::Tensor& right);
at::Tensor& MultiplyEachTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out);
at::Tensor MultiplyAndAddEach(const at::Tensor& addend, const at::Tensor& left,
                              const at::Tensor& right, const at::Scalar& beta,
                              const at::Scalar& alpha);
at::Tensor& MultiplyAndAddEachTo(const at::Tensor& addend, const at::Tensor& left,
                                 const at::Tensor& right, const at::Scalar& beta,
                                 const at::Scalar& alpha, at::Tensor& out);

}  // namespace genesis
