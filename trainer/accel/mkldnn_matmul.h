#pragma once

#include <ATen/core/Tensor.h>

// LibTorch exports it, and has no header for it: result = beta * result + alpha * left * right,
// made by oneDNN. Two matrices or two batches of them, of any strides; all three of one type, FP32
// or BF16. A processor without AVX-512 or BF16 is refused with an exception.
namespace at::native {
TORCH_API void mkldnn_matmul(const Tensor& left, const Tensor& right, const Tensor& result,
                             float beta, float alpha);
}
