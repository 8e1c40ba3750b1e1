#include "trainer/kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trainer/kernels/bf16_in_fp32.h"
#include "trainer/kernels/mkldnn_matmul.h"
#include "trainer/kernels/own_kernels.h"
#include "trainer/kernels/parallel_loop.h"
#include "trainer/kernels/sixteen_floats.h"

GENESIS_BEGIN_AVX512

namespace genesis {
namespace {

using avx512::BySixteen;
using avx512::Floats;
using avx512::kLanes;
using avx512::LoadUpTo;
using avx512::StoreUpTo;

// Converts one query's scores of the first `seen` keys to weights that sum to 1; others get 0.
// Returns the logarithm of the sum of e^score. `weights` may be `scores`.
template <typename T>
float Softmax(float* scores, int64_t keys, int64_t seen, T* weights) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  Floats most = Floats{} + kLeast;
  BySixteen(seen, [&](int64_t i, int64_t count) {
    most = avx512::Larger(LoadUpTo(scores + i, count, kLeast), most);
  });
  float largest = kLeast;
  for (int64_t lane = 0; lane < kLanes; ++lane) largest = std::max(largest, most[lane]);
  Floats sums = {};
  BySixteen(seen, [&](int64_t i, int64_t count) {
    const Floats power = avx512::Exp(LoadUpTo(scores + i, count, kLeast) - largest);
    StoreUpTo(power, scores + i, count);
    sums += power;  // The power of the padding is practically 0.
  });
  float sum = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  BySixteen(seen, [&](int64_t i, int64_t count) {
    StoreUpTo(LoadUpTo(scores + i, count, 0) * (1 / sum), weights + i, count);
  });
  std::fill(weights + seen, weights + keys, T(0));
  return largest + std::log(sum);
}

// Converts one query's scores back to weights (e^(score - logsumexp)), and the gradients of its
// weights to the gradients of the scores: weight * (gradient - mean).
template <typename T>
void SoftmaxGradient(const float* scores, const float* weight_gradients, float logsumexp,
                     float mean, int64_t keys, int64_t seen, T* weights, T* gradients) {
  BySixteen(seen, [&](int64_t i, int64_t count) {
    const Floats weight = avx512::Exp(LoadUpTo(scores + i, count, 0) - logsumexp);
    const Floats gradient = weight * (LoadUpTo(weight_gradients + i, count, 0) - mean);
    StoreUpTo(weight, weights + i, count);
    StoreUpTo(gradient, gradients + i, count);
  });
  std::fill(weights + seen, weights + keys, T(0));
  std::fill(gradients + seen, gradients + keys, T(0));
}

}  // namespace
}  // namespace genesis

GENESIS_END_AVX512

namespace genesis {
namespace {

// Number of scores of the heads processed at once: 2 MiB in FP32.
constexpr int64_t kScoresAtOnce = int64_t{1} << 19;
// Minimum number of multiplications. For fewer, LibTorch is faster than oneDNN with its setup.
constexpr int64_t kFewestAttentionMultiplications = int64_t{1} << 23;
// Minimum multiplications of a product in LibTorch's BF16 kernel, which calls oneDNN for two
// products per head forward and five backward. For smaller products, MKL in FP32 is faster than
// oneDNN with its setup.
constexpr int64_t kFewestBf16Multiplications = int64_t{1} << 17;
// Minimum number of queries per thread.
constexpr int64_t kRowsAtOnce = 128;

bool Suits(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
           const std::optional<at::Tensor>& mask) {
  // Autograd keeps an undefined mask if there was none.
  if (!MultipliesByOneDnn() || dropout != 0 || (mask.has_value() && mask->defined())) return false;
  const at::ScalarType type = query.scalar_type();
  const int64_t scores = query.size(2) * key.size(2);
  return (type == at::kFloat || type == at::kBFloat16) && key.scalar_type() == type &&
         value.scalar_type() == type && query.size(0) == key.size(0) &&
         query.size(1) == key.size(1) && query.size(3) == key.size(3) &&
         key.sizes() == value.sizes() && scores <= kScoresAtOnce &&
         query.size(0) * query.size(1) * query.size(3) * scores >= kFewestAttentionMultiplications;
}

// Returns whether LibTorch's own kernel is faster in FP32 than in BF16.
bool SuitsFp32(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return IsBf16OfCpu(query) && IsBf16OfCpu(key) && IsBf16OfCpu(value) &&
         (MultipliesBf16InFp32() ||
          query.size(2) * key.size(2) * query.size(3) < kFewestBf16Multiplications);
}

std::optional<at::Tensor> WideMask(const std::optional<at::Tensor>& mask) {
  if (!mask.has_value() || !mask->defined() || !IsBf16OfCpu(*mask)) return mask;
  return Wide(*mask);
}

double FactorOf(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
}

// Returns the heads of all examples as one batch of matrices, [B * H, T, D].
at::Tensor Matrices(const at::Tensor& heads) { return heads.flatten(0, 1); }

void MultiplyScaled(const at::Tensor& left, const at::Tensor& right, double scale,
                    const at::Tensor& product) {
  at::native::mkldnn_matmul(left, right, product, /*beta=*/0, static_cast<float>(scale));
}

// Returns left * right' * scale in FP32, for each pair of query and key.
at::Tensor OfEachPair(const at::Tensor& left, const at::Tensor& right, double scale) {
  at::Tensor product = at::empty({left.size(0), left.size(1), right.size(1)}, at::kFloat);
  MultiplyScaled(Wide(left), Wide(right).transpose(1, 2), scale, product);
  return product;
}

// Calls part(first head, number of heads) for as many heads at a time as fit the cache.
template <typename Part>
void ByHeads(const at::Tensor& q, const at::Tensor& k, const Part& part) {
  const int64_t at_once = std::max<int64_t>(1, kScoresAtOnce / (q.size(1) * k.size(1)));
  for (int64_t first = 0; first < q.size(0); first += at_once) {
    part(first, std::min(at_once, q.size(0) - first));
  }
}

// Calls row(index among all queries, number of keys that it sees) from many threads.
template <typename Row>
void ForEachQuery(const at::Tensor& scores, bool causal, const Row& row) {
  const int64_t queries = scores.size(1);
  const int64_t keys = scores.size(2);
  ParallelLoop(scores.size(0) * queries, kRowsAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      row(i, causal ? std::min(i % queries + 1, keys) : keys);
    }
  });
}

// Returns the attention weights [heads, queries, keys] in the type `T`, and writes each query's
// log-sum-exp to `logsumexp`. Overwrites `scores`, whose memory weights in FP32 share.
template <typename T>
at::Tensor WeightsOf(const at::Tensor& scores, bool causal, const at::Tensor& logsumexp) {
  constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  at::Tensor weights = kType == at::kFloat ? scores : at::empty_like(scores, kType);
  const int64_t keys = scores.size(2);
  float* const score = scores.mutable_data_ptr<float>();
  T* const weight = weights.mutable_data_ptr<T>();
  float* const sum = logsumexp.mutable_data_ptr<float>();
  ForEachQuery(scores, causal, [&](int64_t i, int64_t seen) {
    sum[i] = Softmax(score + i * keys, keys, seen, weight + i * keys);
  });
  return weights;
}

// Returns the recomputed weights, and the gradients of the scaled scores, in the type `T`. If it is
// FP32, they overwrite the scores and the gradients of the weights.
template <typename T>
std::pair<at::Tensor, at::Tensor> ScoreGradients(const at::Tensor& scores,
                                                 const at::Tensor& weight_gradients,
                                                 const at::Tensor& logsumexp,
                                                 const at::Tensor& means, bool causal) {
  constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  at::Tensor weights = kType == at::kFloat ? scores : at::empty_like(scores, kType);
  at::Tensor gradients = kType == at::kFloat ? weight_gradients : at::empty_like(scores, kType);
  const int64_t keys = scores.size(2);
  const float* const score = scores.const_data_ptr<float>();
  const float* const weight_gradient = weight_gradients.const_data_ptr<float>();
  const float* const sum = logsumexp.const_data_ptr<float>();
  const float* const mean = means.const_data_ptr<float>();
  T* const weight = weights.mutable_data_ptr<T>();
  T* const gradient = gradients.mutable_data_ptr<T>();
  ForEachQuery(scores, causal, [&](int64_t i, int64_t seen) {
    const int64_t at = i * keys;
    SoftmaxGradient(score + at, weight_gradient + at, sum[i], mean[i], keys, seen, weight + at,
                    gradient + at);
  });
  return {weights, gradients};
}

// Returns the matrices in the memory order of LibTorch, which compiled steps rely on: [B, T, H, D].
at::Tensor LaidOut(const at::Tensor& matrices, const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, matrices.options())
      .transpose(1, 2)
      .copy_(matrices.view(like.sizes()));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> Attention(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value, double dropout, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale) {
  if (!Suits(query, key, value, dropout, mask)) {
    if (!SuitsFp32(query, key, value)) {
      return at::cpu::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout,
                                                                  causal, mask, scale);
    }
    auto [out, logsumexp] = at::cpu::_scaled_dot_product_flash_attention_for_cpu(
        Wide(query), Wide(key), Wide(value), dropout, causal, WideMask(mask), scale);
    return {Rounded(out), logsumexp};
  }
  const at::Tensor q = Matrices(query);
  const at::Tensor k = Matrices(key);
  const at::Tensor v = Matrices(value);
  const at::Tensor out = at::empty(q.sizes(), q.options());
  const at::Tensor logsumexp = at::empty({q.size(0), q.size(1)}, at::kFloat);
  const auto weights_of =
      q.scalar_type() == at::kFloat ? &WeightsOf<float> : &WeightsOf<c10::BFloat16>;
  ByHeads(q, k, [&](int64_t first, int64_t count) {
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const at::Tensor scores = OfEachPair(part(q), part(k), FactorOf(query, scale));
    MultiplyScaled(weights_of(scores, causal, part(logsumexp)), part(v), 1, part(out));
  });
  const at::Tensor sums = logsumexp.view({query.size(0), query.size(1), query.size(2)});
  return {LaidOut(out, query), sums.transpose(1, 2).contiguous().transpose(1, 2)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionGradient(
    const at::Tensor& out_gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& out, const at::Tensor& logsumexp, double dropout,
    bool causal, const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  if (!Suits(query, key, value, dropout, mask)) {
    if (!SuitsFp32(query, key, value)) {
      return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
          out_gradient, query, key, value, out, logsumexp, dropout, causal, mask, scale);
    }
    const auto [dq, dk, dv] = at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
        Wide(out_gradient), Wide(query), Wide(key), Wide(value), Wide(out), logsumexp, dropout,
        causal, WideMask(mask), scale);
    return {Rounded(dq), Rounded(dk), Rounded(dv)};
  }
  const double factor = FactorOf(query, scale);
  const at::Tensor q = Matrices(query);
  const at::Tensor k = Matrices(key);
  const at::Tensor v = Matrices(value);
  const at::Tensor g = Matrices(out_gradient.to(q.scalar_type()));
  const at::Tensor sums = Matrices(logsumexp).contiguous();
  const at::Tensor means = Matrices((Wide(out_gradient) * out).sum(3)).contiguous();
  const at::Tensor dq = at::empty(q.sizes(), q.options());
  const at::Tensor dk = at::empty(k.sizes(), k.options());
  const at::Tensor dv = at::empty(v.sizes(), v.options());
  const auto score_gradients =
      q.scalar_type() == at::kFloat ? &ScoreGradients<float> : &ScoreGradients<c10::BFloat16>;
  ByHeads(q, k, [&](int64_t first, int64_t count) {
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    const auto [weights, scores] =
        score_gradients(OfEachPair(part(q), part(k), factor), OfEachPair(part(g), part(v), 1),
                        part(sums), part(means), causal);
    MultiplyScaled(weights.transpose(1, 2), part(g), 1, part(dv));
    MultiplyScaled(scores, part(k), factor, part(dq));
    MultiplyScaled(scores.transpose(1, 2), part(q), factor, part(dk));
  });
  return {LaidOut(dq, query), LaidOut(dk, key), LaidOut(dv, value)};
}

}  // namespace genesis

// The entry point for compiled steps, which bypasses the dispatcher: see matrix_products.cc.
AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p,
    int32_t is_causal, AtenTensorHandle* attn_mask, double* scale, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  using torch::aot_inductor::new_tensor_handle;
  using torch::aot_inductor::pointer_to_optional;
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        *tensor(query), *tensor(key), *tensor(value), dropout_p, is_causal != 0,
        pointer_to_optional<at::Tensor>(attn_mask), pointer_to_optional<double>(scale));
    *ret0 = new_tensor_handle(std::move(out));
    *ret1 = new_tensor_handle(std::move(logsumexp));
  });
}

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
