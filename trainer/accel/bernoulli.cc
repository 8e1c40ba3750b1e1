#include "trainer/accel/bernoulli.h"

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

#include "trainer/accel/sixteen_floats.h"

GENESIS_BEGIN_AVX512

namespace genesis {
namespace {

using avx512::kLanes;
using avx512::Words;

// MT19937 (Matsumoto and Nishimura, 1998), as at::mt19937.
constexpr int kState = at::MERSENNE_STATE_N;
constexpr int kShift = at::MERSENNE_STATE_M;

GENESIS_INLINE Words Load(const uint32_t* words) {
  Words loaded;
  std::memcpy(&loaded, words, sizeof(loaded));
  return loaded;
}
GENESIS_INLINE void Store(Words words, uint32_t* to) { std::memcpy(to, &words, sizeof(words)); }

template <typename Word>
GENESIS_INLINE Word Twist(Word left, Word right) {
  const Word mixed = (left & at::UMASK) | (right & at::LMASK);
  return (mixed >> 1) ^ ((right & 1) * at::MATRIX_A);
}

// words[i] for `count` words from `begin` on, from words[i + distance] and the next of words[i].
void Renew(uint32_t* words, int begin, int count, int distance) {
  int i = begin;
  for (; i + kLanes <= begin + count; i += kLanes) {
    Store(Load(words + i + distance) ^ Twist(Load(words + i), Load(words + i + 1)), words + i);
  }
  for (; i < begin + count; ++i) words[i] = words[i + distance] ^ Twist(words[i], words[i + 1]);
}

void Renew(std::array<uint32_t, kState>& state) {
  uint32_t* const words = state.data();
  Renew(words, 0, kState - kShift, kShift);
  Renew(words, kState - kShift, kShift - 1, kShift - kState);
  words[kState - 1] = words[kShift - 1] ^ Twist(words[kState - 1], words[0]);
}

template <typename Word>
GENESIS_INLINE Word Tempered(Word word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680;
  word ^= (word << 15) & 0xefc60000;
  return word ^ (word >> 18);
}

// The next `count` numbers of the generator.
void Draw(at::mt19937_data_pod& twister, uint32_t* out, int count) {
  while (count > 0) {
    if (twister.left_ == 1) {
      Renew(twister.state_);
      twister.left_ = kState + 1;
      twister.next_ = 0;
    }
    const int some = std::min(count, twister.left_ - 1);
    const uint32_t* const from = twister.state_.data() + twister.next_;
    int i = 0;
    for (; i + kLanes <= some; i += kLanes) Store(Tempered(Load(from + i)), out + i);
    for (; i < some; ++i) out[i] = Tempered(from[i]);
    twister.left_ -= some;
    twister.next_ += static_cast<uint32_t>(some);
    out += some;
    count -= some;
  }
}

// Where 53 bits of two numbers, the high ones of the first, are below `bound`:
// at::bernoulli_distribution<double>.
template <typename T>
void Compare(const uint32_t* drawn, uint64_t bound, T* out, int count) {
  for (int i = 0; i < count; ++i) {
    const uint64_t both = uint64_t{drawn[2 * i]} << 32 | drawn[2 * i + 1];
    out[i] = static_cast<T>((both & ((uint64_t{1} << 53) - 1)) < bound);
  }
}

#if defined(__x86_64__)
using Pairs = uint64_t __attribute__((vector_size(64)));

// Eight at once; a mask of them.
GENESIS_INLINE __mmask8 CompareEight(const uint32_t* drawn, uint64_t bound) {
  Pairs both;
  std::memcpy(&both, drawn, sizeof(both));
  both = (both << 32 | both >> 32) & ((uint64_t{1} << 53) - 1);
  return _mm512_cmplt_epu64_mask(reinterpret_cast<__m512i>(both),
                                 reinterpret_cast<__m512i>(Pairs{} + bound));
}

void Compare(const uint32_t* drawn, uint64_t bound, bool* out, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i ones = _mm_maskz_set1_epi8(CompareEight(drawn + 2 * i, bound), 1);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i), ones);
  }
  Compare<bool>(drawn + 2 * i, bound, out + i, count - i);
}

void Compare(const uint32_t* drawn, uint64_t bound, float* out, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    const __mmask8 ones = CompareEight(drawn + 2 * i, bound);
    _mm256_storeu_ps(out + i, _mm256_maskz_mov_ps(ones, _mm256_set1_ps(1)));
  }
  Compare<float>(drawn + 2 * i, bound, out + i, count - i);
}
#endif

template <typename T>
void Fill(at::mt19937_data_pod& twister, uint64_t bound, T* out, int64_t count) {
  std::array<uint32_t, kState> drawn;
  constexpr int kSome = kState / 2;
  for (int64_t done = 0; done < count; done += kSome) {
    const int some = static_cast<int>(std::min<int64_t>(kSome, count - done));
    Draw(twister, drawn.data(), 2 * some);
    Compare(drawn.data(), bound, out + done, some);
  }
}

}  // namespace
}  // namespace genesis

GENESIS_END_AVX512

namespace genesis {
namespace {

bool Suits(const at::Tensor& self, double probability) {
  const at::ScalarType type = self.scalar_type();
  return probability >= 0 && probability <= 1 && self.is_non_overlapping_and_dense() &&
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

// The entry of compiled steps, past the dispatcher: see matrix_products.cc.
AOTITorchError aoti_torch_cpu_bernoulli__float(AtenTensorHandle self, double p,
                                               AtenGeneratorHandle* generator) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    torch::aot_inductor::tensor_handle_to_tensor_pointer(self)->bernoulli_(
        p, torch::aot_inductor::pointer_to_optional<at::Generator>(generator));
  });
}
