#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace genesis {

// aten::_scaled_dot_product_flash_attention_for_cpu and its backward. Takes query, key and value
// [B, H, T, D] (key and value may have another T) and returns the output, and the logarithm of each
// query's sum of exponentials [B, H, T] for the backward. The backward returns the gradients of
// query, key and value from the gradient of the output.
//
// LibTorch's kernels compute hundreds of products of 32 rows each, one call at a time. The kernels
// here compute two products forward and five backward with oneDNN, for all heads that fit the
// processor's cache at once (equations as in Dao et al., 2022, appendix B.2), up to three times as
// fast. Scores are FP32 even for BF16, because rounded ones would be wrong by several percent. Used
// if MultipliesByOneDnn. LibTorch's kernels handle masks, dropout, other types, tiny sizes, and
// long sequences, for which they need no whole matrices. For BF16 they run in FP32 if sizes are
// tiny or MultipliesBf16InFp32 (own_kernels.h).
std::tuple<at::Tensor, at::Tensor> Attention(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value, double dropout, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionGradient(
    const at::Tensor& out_gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp, double dropout,
    bool causal, const std::optional<at::Tensor>& mask, std::optional<double> scale);

}  // namespace genesis
