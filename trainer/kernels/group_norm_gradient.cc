#include "trainer/kernels/group_norm_gradient.h"

#include <ATen/ATen.h>
#include <ATen/ops/native_group_norm_backward_cpu_dispatch.h>

#include <algorithm>

#include "trainer/kernels/parallel_loop.h"
#include "trainer/kernels/sixteen_floats.h"

namespace genesis {
namespace {

// Values of a map that one thread processes at a time, which fit its cache.
constexpr int64_t kPart = 65536;

// Division of the maps into parts of whole pixels.
struct Parts {
  int64_t channels;
  int64_t pixels;
  int64_t pixels_each;
  int64_t of_a_map;

  int64_t map(int64_t part) const { return part / of_a_map; }
  int64_t first_pixel(int64_t part) const { return part % of_a_map * pixels_each; }
  int64_t pixels_of(int64_t part) const {
    return std::min(pixels_each, pixels - first_pixel(part));
  }
  int64_t offset(int64_t part) const { return (map(part) * pixels + first_pixel(part)) * channels; }
};

Parts Cut(int64_t channels, int64_t pixels) {
  const int64_t each = std::clamp<int64_t>(kPart / channels, 1, pixels);
  return {channels, pixels, each, (pixels + each - 1) / each};
}

}  // namespace
}  // namespace genesis

GENESIS_BEGIN_AVX512

namespace genesis {
namespace {

using avx512::Floats;
using avx512::kLanes;

// Sums gradient * input, and gradient, over the pixels of a part, per channel.
template <typename T>
void Sum(const T* gradient, const T* input, int64_t pixels, int64_t channels, float* products,
         float* sums) {
  for (int64_t channel = 0; channel < channels; channel += kLanes) {
    // Two accumulators each hide the latency of the addition.
    Floats product[2] = {};
    Floats sum[2] = {};
    const auto add = [&](int64_t pixel, int which) {
      const Floats g = avx512::Load(gradient + pixel * channels + channel);
      product[which] += g * avx512::Load(input + pixel * channels + channel);
      sum[which] += g;
    };
    int64_t pixel = 0;
    for (; pixel + 2 <= pixels; pixel += 2) {
      add(pixel, 0);
      add(pixel + 1, 1);
    }
    if (pixel < pixels) add(pixel, 0);
    avx512::Store(product[0] + product[1], products + channel);
    avx512::Store(sum[0] + sum[1], sums + channel);
  }
}

// Computes gradient * of_gradient + input * of_input + constant, with factors per channel.
template <typename T>
void Combine(const T* gradient, const T* input, int64_t pixels, int64_t channels,
             const float* of_gradient, const float* of_input, const float* constant, T* to) {
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    const int64_t at = pixel * channels;
    for (int64_t channel = 0; channel < channels; channel += kLanes) {
      const Floats g = avx512::Load(gradient + at + channel);
      const Floats x = avx512::Load(input + at + channel);
      avx512::Store(g * avx512::Load(of_gradient + channel) +
                        (x * avx512::Load(of_input + channel) + avx512::Load(constant + channel)),
                    to + at + channel);
    }
  }
}

}  // namespace
}  // namespace genesis

GENESIS_END_AVX512

namespace genesis {
namespace {

// Maps of one pixel have both layouts at once; their strides identify the intended one.
bool Suits(const at::Tensor& input, const std::optional<at::Tensor>& weight, int64_t channels) {
  return (input.scalar_type() == at::kFloat || input.scalar_type() == at::kBFloat16) &&
         input.dim() == 4 && input.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         input.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
         channels % avx512::kLanes == 0 && weight.has_value() && weight->defined() &&
         input.numel() > 0;
}

// Calls Sum() for all parts in threads, and adds the results over the parts of each map: [N, C].
template <typename T>
std::pair<at::Tensor, at::Tensor> ChannelSums(const at::Tensor& gradient, const at::Tensor& input,
                                              int64_t count, const Parts& parts) {
  const int64_t channels = parts.channels;
  const at::Tensor products = at::empty({count, parts.of_a_map, channels}, at::kFloat);
  const at::Tensor sums = at::empty_like(products);
  const T* const g = gradient.const_data_ptr<T>();
  const T* const x = input.const_data_ptr<T>();
  float* const product = products.mutable_data_ptr<float>();
  float* const sum = sums.mutable_data_ptr<float>();
  ParallelLoop(count * parts.of_a_map, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t offset = parts.offset(part);
      Sum(g + offset, x + offset, parts.pixels_of(part), channels, product + part * channels,
          sum + part * channels);
    }
  });
  return {products.sum(1), sums.sum(1)};
}

// Calls Combine() for all parts in threads. The factors are [N, C].
template <typename T>
at::Tensor Combination(const at::Tensor& gradient, const at::Tensor& input, int64_t count,
                       const Parts& parts, const at::Tensor& of_gradient,
                       const at::Tensor& of_input, const at::Tensor& constant) {
  at::Tensor result = at::empty_like(input);
  const T* const g = gradient.const_data_ptr<T>();
  const T* const x = input.const_data_ptr<T>();
  T* const to = result.mutable_data_ptr<T>();
  const auto row = [&](const at::Tensor& factors, int64_t part) {
    return factors.const_data_ptr<float>() + parts.map(part) * parts.channels;
  };
  ParallelLoop(count * parts.of_a_map, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t offset = parts.offset(part);
      Combine(g + offset, x + offset, parts.pixels_of(part), parts.channels, row(of_gradient, part),
              row(of_input, part), row(constant, part), to + offset);
    }
  });
  return result;
}

// Expands each row of [N, groups] to [N, C].
at::Tensor PerChannel(const at::Tensor& groups, int64_t channels) {
  return groups.unsqueeze(2).expand({-1, -1, channels / groups.size(1)}).flatten(1).contiguous();
}

template <typename T>
std::tuple<at::Tensor, at::Tensor, at::Tensor> Gradients(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& rstd, const at::Tensor& weight, const std::array<bool, 3>& wanted) {
  const int64_t count = input.size(0);
  const int64_t channels = input.size(1);
  const int64_t groups = mean.size(1);
  const Parts parts = Cut(channels, input.size(2) * input.size(3));
  const auto [products, sums] = ChannelSums<T>(gradient, input, count, parts);
  const at::Tensor factors = weight.to(at::kFloat);
  const at::Tensor scale = PerChannel(rstd, channels);
  at::Tensor to_input;
  at::Tensor to_weight;
  at::Tensor to_bias;
  if (wanted[0]) {
    // As in Wu and He, 2018, and LibTorch's group_norm_kernel.cpp (there ds, db, c2 and c3).
    const auto of_groups = [&](const at::Tensor& sums_of_channels) {
      return (sums_of_channels * factors).view({count, groups, channels / groups}).sum(2);
    };
    const double values = static_cast<double>(channels / groups * parts.pixels);
    const at::Tensor group_sums = of_groups(sums);
    const at::Tensor of_input =
        (group_sums * mean - of_groups(products)) * rstd * rstd * rstd / values;
    const at::Tensor constant = -of_input * mean - group_sums * rstd / values;
    to_input = Combination<T>(gradient, input, count, parts, scale * factors,
                              PerChannel(of_input, channels), PerChannel(constant, channels));
  }
  if (wanted[1]) {
    to_weight =
        ((products - sums * PerChannel(mean, channels)) * scale).sum(0).to(weight.scalar_type());
  }
  if (wanted[2]) to_bias = sums.sum(0).to(weight.scalar_type());
  return {to_input, to_weight, to_bias};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> GroupNormGradient(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& rstd, const std::optional<at::Tensor>& weight, int64_t count,
    int64_t channels, int64_t pixels, int64_t groups, std::array<bool, 3> wanted) {
  if (!Suits(input, weight, channels) || gradient.scalar_type() != input.scalar_type()) {
    return at::cpu::native_group_norm_backward(gradient, input, mean, rstd, weight, count, channels,
                                               pixels, groups, wanted);
  }
  const at::Tensor laid_out = gradient.contiguous(at::MemoryFormat::ChannelsLast);
  const auto gradients =
      input.scalar_type() == at::kFloat ? &Gradients<float> : &Gradients<c10::BFloat16>;
  return gradients(laid_out, input, mean.to(at::kFloat).view({count, groups}),
                   rstd.to(at::kFloat).view({count, groups}), *weight, wanted);
}

}  // namespace genesis
