#include "trainer/run/attention_gradient.h"

#include <ATen/ATen.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trainer/run/mkldnn_matmul.h"

namespace genesis {
namespace {

// Scores of the heads that are worked on at once: 2 MiB in FP32.
constexpr int64_t kScoresAtOnce = int64_t{1} << 19;
// Smaller ones LibTorch has made by the time that oneDNN has found how to.
constexpr int64_t kFewestMultiplications = int64_t{1} << 23;

bool Suits(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const at::ScalarType type = query.scalar_type();
  const int64_t scores = query.size(2) * key.size(2);
  return (type == at::kFloat || type == at::kBFloat16) && key.scalar_type() == type &&
         value.scalar_type() == type && query.size(0) == key.size(0) &&
         query.size(1) == key.size(1) && query.size(3) == key.size(3) &&
         key.sizes() == value.sizes() && scores <= kScoresAtOnce &&
         query.size(0) * query.size(1) * query.size(3) * scores >= kFewestMultiplications;
}

// One matrix for each head of each example.
at::Tensor Matrices(const at::Tensor& heads) { return heads.flatten(0, 1); }

at::Tensor Precise(const at::Tensor& matrices) { return matrices.to(at::kFloat); }

void Multiply(const at::Tensor& left, const at::Tensor& right, double scale,
              const at::Tensor& product) {
  at::native::mkldnn_matmul(left, right, product, /*beta=*/0, static_cast<float>(scale));
}

// What is added to scores so that no query sees a later key.
at::Tensor Future(int64_t queries, int64_t keys, bool causal) {
  if (!causal) return at::zeros({1, keys});
  return at::full({queries, keys}, -std::numeric_limits<float>::infinity()).triu_(1);
}

// Those of the forward pass again: exp(q k' * scale - logsumexp).
at::Tensor Weights(const at::Tensor& q, const at::Tensor& k, double scale,
                   const at::Tensor& logsumexp, const at::Tensor& future) {
  at::Tensor scores = future - logsumexp;
  at::native::mkldnn_matmul(Precise(q), Precise(k).transpose(1, 2), scores, /*beta=*/1,
                            static_cast<float>(scale));
  return scores.exp_();
}

// weights * (g v' - means), of the scores before their scaling.
at::Tensor ScoreGradient(const at::Tensor& weights, const at::Tensor& g, const at::Tensor& v,
                         const at::Tensor& means) {
  at::Tensor gradient = at::empty_like(weights);
  Multiply(Precise(g), Precise(v).transpose(1, 2), 1, gradient);
  return gradient.sub_(means).mul_(weights);
}

// In the memory order that LibTorch gives it, which compiled steps rely on: [B, T, H, D].
at::Tensor LaidOut(const at::Tensor& matrices, const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, matrices.options())
      .transpose(1, 2)
      .copy_(matrices.view(like.sizes()));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionGradient(
    const at::Tensor& out_gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp, double dropout,
    bool causal, const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  // Autograd has kept an undefined one where there was none.
  const bool masked = mask.has_value() && mask->defined();
  if (dropout != 0 || masked || !Suits(query, key, value)) {
    return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
        out_gradient, query, key, value, out, logsumexp, dropout, causal, mask, scale);
  }
  const at::ScalarType type = query.scalar_type();
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  const at::Tensor q = Matrices(query);
  const at::Tensor k = Matrices(key);
  const at::Tensor v = Matrices(value);
  const at::Tensor g = Matrices(out_gradient.to(type));
  const at::Tensor sums = Matrices(logsumexp).unsqueeze(2);
  const at::Tensor means = Matrices((Precise(out_gradient) * out).sum(3, /*keepdim=*/true));
  const at::Tensor future = Future(query.size(2), key.size(2), causal);
  const at::Tensor dq = at::empty(q.sizes(), q.options());
  const at::Tensor dk = at::empty(k.sizes(), k.options());
  const at::Tensor dv = at::empty(v.sizes(), v.options());

  const int64_t at_once = std::max<int64_t>(1, kScoresAtOnce / (query.size(2) * key.size(2)));
  for (int64_t first = 0; first < q.size(0); first += at_once) {
    const int64_t count = std::min(at_once, q.size(0) - first);
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const at::Tensor weights = Weights(part(q), part(k), factor, part(sums), future);
    const at::Tensor scores = ScoreGradient(weights, part(g), part(v), part(means)).to(type);
    Multiply(weights.to(type).transpose(1, 2), part(g), 1, part(dv));
    Multiply(scores, part(k), factor, part(dq));
    Multiply(scores.transpose(1, 2), part(q), factor, part(dk));
  }
  return {LaidOut(dq, query), LaidOut(dk, key), LaidOut(dv, value)};
}

}  // namespace genesis

// What compiled steps call, past the dispatcher: see matrix_products.cc.
AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
    AtenTensorHandle grad_out, AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value,
    AtenTensorHandle out, AtenTensorHandle logsumexp, double dropout_p, int32_t is_causal,
    AtenTensorHandle* attn_mask, double* scale, AtenTensorHandle* ret0, AtenTensorHandle* ret1,
    AtenTensorHandle* ret2) {
  using torch::aot_inductor::new_tensor_handle;
  using torch::aot_inductor::pointer_to_optional;
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        *tensor(grad_out), *tensor(query), *tensor(key), *tensor(value), *tensor(out),
        *tensor(logsumexp), dropout_p, is_causal != 0, pointer_to_optional<at::Tensor>(attn_mask),
        pointer_to_optional<double>(scale));
    *ret0 = new_tensor_handle(std::move(dq));
    *ret1 = new_tensor_handle(std::move(dk));
    *ret2 = new_tensor_handle(std::move(dv));
  });
}
