#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace genesis {

// Side of the smallest square matrices that oneDNN multiplies. For smaller ones MKL is faster than
// oneDNN, whose setup takes some 10 microseconds.
inline constexpr int64_t kLeastOneDnnSide = 128;

// aten::mm, addmm, bmm and baddbmm, and their out variants.
//
// Two FP32 matrices on the CPU are multiplied by oneDNN if MultipliesByOneDnn. BF16 ones are
// multiplied in FP32 and rounded once if MultipliesBf16InFp32 (own_kernels.h). Products too small
// for oneDNN, and all other kinds, are left to LibTorch.
at::Tensor Multiply(const at::Tensor& left, const at::Tensor& right);
at::Tensor& MultiplyTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out);
at::Tensor MultiplyAndAdd(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                          const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor& MultiplyAndAddTo(const at::Tensor& addend, const at::Tensor& left,
                             const at::Tensor& right, const at::Scalar& beta,
                             const at::Scalar& alpha, at::Tensor& out);

// Batched products: one for each pair of matrices.
at::Tensor MultiplyEach(const at::Tensor& left, const at::Tensor& right);
at::Tensor& MultiplyEachTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out);
at::Tensor MultiplyAndAddEach(const at::Tensor& addend, const at::Tensor& left,
                              const at::Tensor& right, const at::Scalar& beta,
                              const at::Scalar& alpha);
at::Tensor& MultiplyAndAddEachTo(const at::Tensor& addend, const at::Tensor& left,
                                 const at::Tensor& right, const at::Scalar& beta,
                                 const at::Scalar& alpha, at::Tensor& out);

}  // namespace genesis
