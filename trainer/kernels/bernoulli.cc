#include "trainer/kernels/bernoulli.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/bernoulli_cpu_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "config/precision/vector_instructions.h"
#include "trainer/kernels/sixteen_floats.h"

namespace genesis {
namespace {

// MT19937 (Matsumoto and Nishimura, 1998), as at::mt19937.
constexpr int kState = at::MERSENNE_STATE_N;
constexpr int kShift = at::MERSENNE_STATE_M;

// A pair of numbers determines one result, as in at::bernoulli_distribution<double>: it is one if
// 53 of their bits, the high ones from the first number, are below a bound.
constexpr uint64_t kBits = (uint64_t{1} << 53) - 1;

}  // namespace
}  // namespace genesis

#if defined(__x86_64__)
GENESIS_BEGIN_AVX512
namespace genesis {
namespace {
namespace avx512_bernoulli {

constexpr int kLanes = 16;
using Pairs = uint64_t __attribute__((vector_size(64)));

// Returns a mask of those of eight pairs whose result is one.
GENESIS_INLINE __mmask8 Ones(const uint32_t* drawn, uint64_t bound) {
  Pairs both;
  std::memcpy(&both, drawn, sizeof(both));
  both = (both << 32 | both >> 32) & kBits;
  return _mm512_cmplt_epu64_mask(reinterpret_cast<__m512i>(both),
                                 reinterpret_cast<__m512i>(Pairs{} + bound));
}

GENESIS_INLINE void CompareSome(const uint32_t* drawn, uint64_t bound, bool* out) {
  const __m128i ones = _mm_maskz_set1_epi8(Ones(drawn, bound), 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), ones);
}

GENESIS_INLINE void CompareSome(const uint32_t* drawn, uint64_t bound, float* out) {
  _mm256_storeu_ps(out, _mm256_maskz_mov_ps(Ones(drawn, bound), _mm256_set1_ps(1)));
}

#include "trainer/kernels/bernoulli_loops.inl"

}  // namespace avx512_bernoulli
}  // namespace
}  // namespace genesis
GENESIS_END_AVX512

GENESIS_BEGIN_AVX2
namespace genesis {
namespace {
namespace avx2_bernoulli {

constexpr int kLanes = 8;
using Pairs = int64_t __attribute__((vector_size(32)));

// Returns four pairs with all 64 bits set if the result of a pair is one, otherwise zero.
GENESIS_INLINE __m256i Ones(const uint32_t* drawn, uint64_t bound) {
  const __m256i both = _mm256_shuffle_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(drawn)), _MM_SHUFFLE(2, 3, 0, 1));
  const Pairs bits = reinterpret_cast<Pairs>(both) & static_cast<int64_t>(kBits);
  return _mm256_cmpgt_epi64(reinterpret_cast<__m256i>(Pairs{} + static_cast<int64_t>(bound)),
                            reinterpret_cast<__m256i>(bits));
}

GENESIS_INLINE void CompareSome(const uint32_t* drawn, uint64_t bound, bool* out) {
  const int ones = _mm256_movemask_pd(_mm256_castsi256_pd(Ones(drawn, bound)));
  // Move bit i to byte i.
  const uint32_t bytes = static_cast<uint32_t>(ones) * 0x00204081U & 0x01010101U;
  std::memcpy(out, &bytes, sizeof(bytes));
}

GENESIS_INLINE void CompareSome(const uint32_t* drawn, uint64_t bound, float* out) {
  const __m256i halves =
      _mm256_permutevar8x32_epi32(Ones(drawn, bound), _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0));
  const __m128 ones = _mm_castsi128_ps(_mm256_castsi256_si128(halves));
  _mm_storeu_ps(out, _mm_and_ps(ones, _mm_set1_ps(1)));
}

#include "trainer/kernels/bernoulli_loops.inl"

}  // namespace avx2_bernoulli
}  // namespace
}  // namespace genesis
GENESIS_END_AVX2
#endif

namespace genesis {
namespace {

template <typename T>
void Fill(at::mt19937_data_pod& twister, uint64_t bound, T* out, int64_t count) {
#if defined(__x86_64__)
  if (HasAvx512()) return avx512_bernoulli::Fill(twister, bound, out, count);
  avx2_bernoulli::Fill(twister, bound, out, count);
#endif
}

bool Suits(const at::Tensor& self, double probability) {
  const at::ScalarType type = self.scalar_type();
  return HasAvx2() && probability >= 0 && probability <= 1 && self.is_non_overlapping_and_dense() &&
         (type == at::kBool || type == at::kFloat || type == at::kBFloat16);
}

}  // namespace

at::Tensor& Bernoulli(at::Tensor& self, double probability,
                      std::optional<at::Generator> generator) {
  if (!Suits(self, probability)) return at::cpu::bernoulli_(self, probability, generator);
  auto* const numbers = at::get_generator_or_default<at::CPUGeneratorImpl>(
      generator, at::detail::getDefaultCPUGenerator());
  const auto bound = static_cast<uint64_t>(std::ceil(std::ldexp(probability, 53)));
  const std::lock_guard<std::mutex> lock(numbers->mutex_);
  at::mt19937 engine = numbers->engine();
  at::mt19937_data_pod twister = engine.data();
  switch (self.scalar_type()) {
    case at::kBool:
      Fill(twister, bound, self.mutable_data_ptr<bool>(), self.numel());
      break;
    case at::kFloat:
      Fill(twister, bound, self.mutable_data_ptr<float>(), self.numel());
      break;
    default:
      Fill(twister, bound, self.mutable_data_ptr<at::BFloat16>(), self.numel());
  }
  engine.set_data(twister);
  numbers->set_engine(engine);
  return self;
}

}  // namespace genesis

// The entry point for compiled steps, which bypasses the dispatcher: see matrix_products.cc.
AOTITorchError aoti_torch_cpu_bernoulli__float(AtenTensorHandle self, double p,
                                               AtenGeneratorHandle* generator) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    torch::aot_inductor::tensor_handle_to_tensor_pointer(self)->bernoulli_(
        p, torch::aot_inductor::pointer_to_optional<at::Generator>(generator));
  });
}
