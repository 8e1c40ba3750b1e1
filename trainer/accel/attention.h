#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace genesis {

// aten::_scaled_dot_product_flash_attention_for_cpu: of query, key and value [B, H, T, D] (T of its
// own for key and value) the output, and the logarithm of each query's sum of exponentials
// [B, H, T], which the gradient takes. And its gradient: those of query, key and value, from that
// of the output.
//
// LibTorch's make hundreds of products of 32 rows each, one call at a time. These make two and five
// of all heads that fit the processor's cache at once, by oneDNN (equations as in Dao et al., 2022,
// appendix B.2), up to three times as fast. Scores are FP32 in BF16 too, for rounded ones would be
// wrong by percents. All this where MultipliesByOneDnn. Long sequences, which LibTorch's need not
// hold as whole matrices, and masks, dropout, other types and tiny ones stay with LibTorch's: those
// of BF16 in FP32 where they are tiny, or where MultipliesBf16InFp32 (own_kernels.h).
std::tuple<at::Tensor, at::Tensor> Attention(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value, double dropout, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionGradient(
    const at::Tensor& out_gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp, double dropout,
    bool causal, const std::optional<at::Tensor>& mask, std::optional<double> scale);

}  // namespace genesis
