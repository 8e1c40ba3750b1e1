#include "trainer/kernels/activations.h"

#include <ATen/ATen.h>
#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>

#include <cmath>

#include "trainer/kernels/parallel_loop.h"
#include "trainer/kernels/sixteen_floats.h"

GENESIS_BEGIN_AVX512

namespace genesis {
namespace {

using avx512::Floats;

// Minimum number of elements per thread.
constexpr int64_t kGrain = 32768;

// x sigmoid(u) and its derivative, with u' the derivative of u: sigmoid(u) = 1 / (1 + e^-u). 1 -
// sigmoid(u) = e^-u sigmoid(u) keeps its digits even if sigmoid(u) is near 1.
GENESIS_INLINE Floats Gated(Floats x, Floats u) { return x / (1 + avx512::Exp(-u)); }
GENESIS_INLINE Floats SlopeOfGated(Floats x, Floats u, Floats slope_of_u) {
  const Floats power = avx512::Exp(-u);
  const Floats sigmoid = 1 / (1 + power);
  return sigmoid + sigmoid * (sigmoid * power) * (x * slope_of_u);
}

struct SiluOf {
  static GENESIS_INLINE Floats Value(Floats x) { return Gated(x, x); }
  static GENESIS_INLINE Floats Slope(Floats x) { return SlopeOfGated(x, x, Floats{} + 1); }
};

// x (1 + tanh(u / 2)) / 2 = x sigmoid(u), with u = x (kLinear + kCubic x^2).
struct GeluOf {
  static constexpr float kLinear = 2 * M_2_SQRTPI * M_SQRT1_2;
  static constexpr float kCubic = kLinear * 0.044715f;
  static GENESIS_INLINE Floats Value(Floats x) {
    return Gated(x, x * (kLinear + kCubic * (x * x)));
  }
  static GENESIS_INLINE Floats Slope(Floats x) {
    const Floats square = x * x;
    return SlopeOfGated(x, x * (kLinear + kCubic * square), kLinear + 3 * kCubic * square);
  }
};

template <typename Activation, typename T>
void Values(const T* in, T* out, int64_t count) {
  avx512::BySixteen(count, [&](int64_t i, int64_t some) {
    avx512::StoreUpTo(Activation::Value(avx512::LoadUpTo(in + i, some)), out + i, some);
  });
}

template <typename Activation, typename T>
void Gradients(const T* gradient, const T* in, T* out, int64_t count) {
  avx512::BySixteen(count, [&](int64_t i, int64_t some) {
    const Floats slope = Activation::Slope(avx512::LoadUpTo(in + i, some));
    avx512::StoreUpTo(avx512::LoadUpTo(gradient + i, some) * slope, out + i, some);
  });
}

template <typename Activation, typename T>
at::Tensor AllValues(const at::Tensor& input) {
  at::Tensor output = at::empty_like(input);
  const T* const in = input.const_data_ptr<T>();
  T* const out = output.mutable_data_ptr<T>();
  ParallelLoop(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Values<Activation>(in + begin, out + begin, end - begin);
  });
  return output;
}

template <typename Activation, typename T>
at::Tensor AllGradients(const at::Tensor& gradient, const at::Tensor& input) {
  at::Tensor output = at::empty_like(input);
  const T* const arriving = gradient.const_data_ptr<T>();
  const T* const in = input.const_data_ptr<T>();
  T* const out = output.mutable_data_ptr<T>();
  ParallelLoop(input.numel(), kGrain, [&](int64_t begin, int64_t end) {
    Gradients<Activation>(arriving + begin, in + begin, out + begin, end - begin);
  });
  return output;
}

}  // namespace
}  // namespace genesis

GENESIS_END_AVX512

namespace genesis {
namespace {

bool Suits(const at::Tensor& tensor) {
  return (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16) &&
         tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense();
}

bool SuitGradient(const at::Tensor& gradient, const at::Tensor& input) {
  return Suits(input) && gradient.scalar_type() == input.scalar_type() &&
         gradient.sizes() == input.sizes() && gradient.strides() == input.strides();
}

template <typename Activation>
at::Tensor Apply(const at::Tensor& input) {
  return input.scalar_type() == at::kFloat ? AllValues<Activation, float>(input)
                                           : AllValues<Activation, c10::BFloat16>(input);
}

template <typename Activation>
at::Tensor ApplyGradient(const at::Tensor& gradient, const at::Tensor& input) {
  return input.scalar_type() == at::kFloat
             ? AllGradients<Activation, float>(gradient, input)
             : AllGradients<Activation, c10::BFloat16>(gradient, input);
}

}  // namespace

at::Tensor Silu(const at::Tensor& input) {
  return Suits(input) ? Apply<SiluOf>(input) : at::cpu::silu(input);
}

at::Tensor SiluGradient(const at::Tensor& gradient, const at::Tensor& input) {
  if (!SuitGradient(gradient, input)) return at::cpu::silu_backward(gradient, input);
  return ApplyGradient<SiluOf>(gradient, input);
}

at::Tensor Gelu(const at::Tensor& input, c10::string_view approximate) {
  if (approximate != "tanh" || !Suits(input)) return at::cpu::gelu(input, approximate);
  return Apply<GeluOf>(input);
}

at::Tensor GeluGradient(const at::Tensor& gradient, const at::Tensor& input,
                        c10::string_view approximate) {
  if (approximate != "tanh" || !SuitGradient(gradient, input)) {
    return at::cpu::gelu_backward(gradient, input, approximate);
  }
  return ApplyGradient<GeluOf>(gradient, input);
}

}  // namespace genesis
