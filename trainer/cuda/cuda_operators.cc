#include "trainer/cuda/cuda_operators.h"

#include <ATen/SDPBackend.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

namespace genesis {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Returns the type of the weights, or that of `input` if there are none.
at::ScalarType TypeToComputeIn(const Tensor& input, const OptionalTensor& weight) {
  return weight && weight->defined() ? weight->scalar_type() : input.scalar_type();
}

// Converts the tensor; undefined stays undefined.
Tensor As(const Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

Three LayerNorm(const Tensor& input, c10::IntArrayRef shape, const OptionalTensor& weight,
                const OptionalTensor& bias, double epsilon) {
  auto [out, mean, rstd] =
      at::native_layer_norm(input.to(TypeToComputeIn(input, weight)), shape, weight, bias, epsilon);
  return {As(out, input.scalar_type()), mean, rstd};
}

Three LayerNormBackward(const Tensor& gradient, const Tensor& input, c10::IntArrayRef shape,
                        const Tensor& mean, const Tensor& rstd, const OptionalTensor& weight,
                        const OptionalTensor& bias, std::array<bool, 3> wanted) {
  const at::ScalarType type = TypeToComputeIn(input, weight);
  auto [to_input, to_weight, to_bias] = at::native_layer_norm_backward(
      gradient.to(type), input.to(type), shape, mean, rstd, weight, bias, wanted);
  return {As(to_input, input.scalar_type()), to_weight, to_bias};
}

Three GroupNorm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                int64_t examples, int64_t channels, int64_t pixels, int64_t groups,
                double epsilon) {
  auto [out, mean, rstd] = at::native_group_norm(input.to(TypeToComputeIn(input, weight)), weight,
                                                 bias, examples, channels, pixels, groups, epsilon);
  return {As(out, input.scalar_type()), mean, rstd};
}

Three GroupNormBackward(const Tensor& gradient, const Tensor& input, const Tensor& mean,
                        const Tensor& rstd, const OptionalTensor& weight, int64_t examples,
                        int64_t channels, int64_t pixels, int64_t groups,
                        std::array<bool, 3> wanted) {
  const at::ScalarType type = TypeToComputeIn(input, weight);
  auto [to_input, to_weight, to_bias] = at::native_group_norm_backward(
      gradient.to(type), input.to(type), mean.to(type), rstd.to(type), weight, examples, channels,
      pixels, groups, wanted);
  return {As(to_input, input.scalar_type()), to_weight, to_bias};
}

// Attention with the padding rules of at::scaled_dot_product_attention
// (ATen/native/transformers/attention.cpp): CUDA kernels require heads of a multiple of 8 elements,
// equally many for query, key and value, and masks whose rows begin at a multiple of 8 elements.
class Attention {
 public:
  Attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
            bool causal, const OptionalTensor& mask, std::optional<double> scale)
      : width_(query.size(-1)),
        shared_(query.size(1) / key.size(1)),
        causal_(causal),
        scale_(scale.value_or(1 / std::sqrt(static_cast<double>(width_)))),
        query_(Padded(query)),
        key_(Padded(Repeated(key))),
        value_(Padded(Repeated(value))) {
    // Torch uses this operator only for attention without dropout.
    TORCH_CHECK(dropout == 0, "attention of a graph for the CPU with dropout ", dropout);
    if (mask && mask->defined()) {
      mask_ = Aligned(mask->to(query.scalar_type()))
                  .expand({query.size(0), query.size(1), query.size(2), key.size(2)});
    }
    flash_ = at::_fused_sdp_choice(query_, key_, value_, mask_, 0, causal_, scale_) ==
             static_cast<int64_t>(at::SDPBackend::flash_attention);
  }

  // Returns the output, as wide as the query, and the logsumexp for backward.
  std::tuple<Tensor, Tensor> Forward() const {
    if (flash_) {
      const auto found = at::_scaled_dot_product_flash_attention(
          query_, key_, value_, 0, causal_, /*return_debug_mask=*/false, scale_);
      return {Cut(std::get<0>(found)), std::get<1>(found)};
    }
    const auto found = at::_scaled_dot_product_efficient_attention(
        query_, key_, value_, mask_, /*compute_log_sumexp=*/true, 0, causal_, scale_);
    return {Cut(std::get<0>(found)), std::get<1>(found)};
  }

  Three Backward(const Tensor& gradient, const Tensor& out, const Tensor& logsumexp) const {
    Tensor to_query;
    Tensor to_key;
    Tensor to_value;
    // Unused random state of dropout.
    const Tensor seed = at::empty({2}, query_.options().dtype(at::kLong));
    if (flash_) {
      std::tie(to_query, to_key, to_value) = at::_scaled_dot_product_flash_attention_backward(
          Padded(gradient), query_, key_, value_, Padded(out), logsumexp, {}, {}, query_.size(2),
          key_.size(2), 0, causal_, seed, seed, scale_);
    } else {
      std::tie(to_query, to_key, to_value, std::ignore) =
          at::_scaled_dot_product_efficient_attention_backward(
              Padded(gradient), query_, key_, value_, mask_.value_or(Tensor()), Padded(out),
              logsumexp, seed, seed, 0, {true, true, true, false}, causal_, scale_);
    }
    return {Cut(to_query), Summed(Cut(to_key)), Summed(Cut(to_value))};
  }

 private:
  static constexpr int64_t kAlignment = 8;

  static Tensor Padded(const Tensor& tensor) {
    const int64_t missing = -tensor.size(-1) & (kAlignment - 1);
    return missing == 0 ? tensor : at::constant_pad_nd(tensor, {0, missing});
  }
  static Tensor Aligned(const Tensor& mask) {
    return Padded(mask.contiguous()).narrow(-1, 0, mask.size(-1));
  }
  Tensor Cut(const Tensor& tensor) const { return tensor.narrow(-1, 0, width_); }
  // Repeats each head of key and value for the consecutive heads of query that share it.
  Tensor Repeated(const Tensor& tensor) const {
    return shared_ == 1 ? tensor : tensor.repeat_interleave(shared_, 1);
  }
  Tensor Summed(const Tensor& gradient) const {
    return shared_ == 1 ? gradient : gradient.unflatten(1, {-1, shared_}).sum(2);
  }

  const int64_t width_;
  const int64_t shared_;
  const bool causal_;
  const double scale_;
  const Tensor query_;
  const Tensor key_;
  const Tensor value_;
  OptionalTensor mask_;
  bool flash_ = false;
};

std::tuple<Tensor, Tensor> AttentionForward(const Tensor& query, const Tensor& key,
                                            const Tensor& value, double dropout, bool causal,
                                            const OptionalTensor& mask,
                                            std::optional<double> scale) {
  return Attention(query, key, value, dropout, causal, mask, scale).Forward();
}

Three AttentionBackward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                        const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                        double dropout, bool causal, const OptionalTensor& mask,
                        std::optional<double> scale) {
  return Attention(query, key, value, dropout, causal, mask, scale)
      .Backward(gradient, out, logsumexp);
}

Tensor View(const Tensor& tensor, c10::IntArrayRef size) { return tensor.reshape(size); }

class Definitions {
 public:
  Definitions() {
    Define("native_layer_norm", &LayerNorm);
    Define("native_layer_norm_backward", &LayerNormBackward);
    Define("native_group_norm", &GroupNorm);
    Define("native_group_norm_backward", &GroupNormBackward);
    Define("_scaled_dot_product_flash_attention_for_cpu", &AttentionForward);
    Define("_scaled_dot_product_flash_attention_for_cpu_backward", &AttentionBackward);
    Define("view", &View);
    Define("_unsafe_view", &View);
  }

  const std::vector<std::pair<std::string, std::string>>& names() const { return names_; }

 private:
  template <typename Kernel>
  void Define(const std::string& name, Kernel kernel) {
    const c10::FunctionSchema& schema =
        c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name).c_str(), "").schema();
    library_.def(schema.cloneWithName("genesis::" + name, ""));
    library_.impl(name.c_str(),
                  torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
    names_.emplace_back("torch.ops.aten." + name + ".default",
                        "torch.ops.genesis." + name + ".default");
  }

  torch::Library library_{torch::Library::DEF, "genesis", std::nullopt, __FILE__, __LINE__};
  std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace

const std::vector<std::pair<std::string, std::string>>& OperatorsForCuda() {
  static const Definitions definitions;
  return definitions.names();
}

}  // namespace genesis
