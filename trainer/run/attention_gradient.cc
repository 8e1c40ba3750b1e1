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

void Multiply(const at::Tensor& left, const at::Tensor& right, double scale,
              const at::Tensor& product) {
  at::native::mkldnn_matmul(left, right, product, /*beta=*/0, static_cast<float>(scale));
}

// In the memory order that LibTorch gives it, which compiled steps rely on: [B, T, H, D].
at::Tensor Gradient(const at::Tensor& of) {
  return at::empty({of.size(0), of.size(2), of.size(1), of.size(3)}, of.options()).transpose(1, 2);
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
  const int64_t rows = query.size(2);
  const int64_t columns = key.size(2);
  const at::Tensor q = Matrices(query);
  const at::Tensor k = Matrices(key);
  const at::Tensor v = Matrices(value);
  const at::Tensor g = Matrices(out_gradient.to(type));
  const at::Tensor minus_sums = Matrices(logsumexp).unsqueeze(2).neg();
  const at::Tensor means = Matrices((out_gradient.to(at::kFloat) * out).sum(3, /*keepdim=*/true));
  at::Tensor future = at::zeros({1, columns}, minus_sums.options());
  if (causal) {
    future = at::full({rows, columns}, -std::numeric_limits<float>::infinity(), future.options())
                 .triu_(1);
  }
  at::Tensor dq = at::empty(q.sizes(), q.options());
  at::Tensor dk = at::empty(k.sizes(), k.options());
  at::Tensor dv = at::empty(v.sizes(), v.options());

  const int64_t at_once = std::max<int64_t>(1, kScoresAtOnce / (rows * columns));
  for (int64_t first = 0; first < q.size(0); first += at_once) {
    const int64_t count = std::min(at_once, q.size(0) - first);
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const auto precise = [&](const at::Tensor& all) { return part(all).to(at::kFloat); };
    // p = exp(q k' * factor - logsumexp): the attention weights of the forward pass.
    const at::Tensor weights = part(minus_sums) + future;
    at::native::mkldnn_matmul(precise(q), precise(k).transpose(1, 2), weights, /*beta=*/1,
                              static_cast<float>(factor));
    weights.exp_();
    // ds = p * (g v' - rowsum(g * out)).
    const at::Tensor scores = at::empty_like(weights);
    Multiply(precise(g), precise(v).transpose(1, 2), 1, scores);
    scores.sub_(part(means)).mul_(weights);
    const at::Tensor p = weights.to(type);
    const at::Tensor ds = scores.to(type);
    Multiply(p.transpose(1, 2), part(g), 1, part(dv));
    Multiply(ds, part(k), factor, part(dq));
    Multiply(ds.transpose(1, 2), part(q), factor, part(dk));
  }
  const auto laid_out = [](const at::Tensor& matrices, const at::Tensor& of) {
    return Gradient(of).copy_(matrices.view(of.sizes()));
  };
  return {laid_out(dq, query), laid_out(dk, key), laid_out(dv, value)};
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
