#pragma once

#include <ATen/core/Tensor.h>

// LibTorch exports this function without a header: result = beta * result + alpha * left * right,
// computed by oneDNN. Two matrices or two batches of them, of any strides; all three of the same
// type, FP32 or BF16. Throws on a processor without AVX-512 or BF16.
namespace at::native {
TORCH_API void mkldnn_matmul(const Tensor& left, const Tensor& right, const Tensor& result,
                             float beta, float alpha);
}
