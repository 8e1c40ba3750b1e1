#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Vectors of sixteen numbers, for loops that run only on processors with AVX-512. Write such a loop
// between GENESIS_BEGIN_AVX512 and GENESIS_END_AVX512, after the last #include, and in an anonymous
// namespace, so that no other code is compiled for AVX-512 with it.
#if defined(__x86_64__)
#define GENESIS_BEGIN_AVX512 \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512bw,avx512vl,avx512dq,fma\")")
#define GENESIS_END_AVX512 _Pragma("GCC pop_options")
// Same for AVX2, for loops that set their own number of lanes.
#define GENESIS_BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define GENESIS_END_AVX2 _Pragma("GCC pop_options")
#else
#define GENESIS_BEGIN_AVX512
#define GENESIS_END_AVX512
#endif

GENESIS_BEGIN_AVX512

namespace genesis::avx512 {

inline constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));

#define GENESIS_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
// GCC 12 compiles __builtin_convertvector to sixteen conversions. The full mask avoids a warning
// about GCC's own header.
GENESIS_INLINE Words Widened(Halves halves) {
  return reinterpret_cast<Words>(
      _mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(halves)));
}
GENESIS_INLINE Halves Narrowed(Words words) {
  return reinterpret_cast<Halves>(
      _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(words)));
}
// NaN stays NaN because it is the second operand.
GENESIS_INLINE Floats Clamped(Floats x, float least, float most) {
  const auto at_least = _mm512_maskz_max_ps(0xffff, _mm512_set1_ps(least), x);
  return _mm512_maskz_min_ps(0xffff, _mm512_set1_ps(most), at_least);
}
#else
GENESIS_INLINE Words Widened(Halves halves) { return __builtin_convertvector(halves, Words); }
GENESIS_INLINE Halves Narrowed(Words words) { return __builtin_convertvector(words, Halves); }
GENESIS_INLINE Floats Clamped(Floats x, float least, float most) {
  x = x < least ? Floats{} + least : x;
  return x > most ? Floats{} + most : x;
}
#endif

GENESIS_INLINE Floats Load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}

GENESIS_INLINE Floats Load(const c10::BFloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  return reinterpret_cast<Floats>(Widened(halves) << 16);
}

GENESIS_INLINE void Store(Floats values, float* to) { std::memcpy(to, &values, sizeof(values)); }

// Rounds to nearest, ties to even, as c10::detail::round_to_nearest_even; NaN stays NaN.
GENESIS_INLINE void Store(Floats values, c10::BFloat16* to) {
  const Words bits = reinterpret_cast<Words>(values);
  const Words nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Words is_nan = reinterpret_cast<Words>(values != values);
  const Halves halves = Narrowed((is_nan & 0x7fc0) | (~is_nan & nearest));
  std::memcpy(to, &halves, sizeof(halves));
}

// Loads the first `count` of sixteen; the others are `rest`.
template <typename T>
GENESIS_INLINE Floats LoadSome(const T* from, int64_t count, float rest = 0) {
  T all[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) all[i] = i < count ? from[i] : static_cast<T>(rest);
  return Load(all);
}

template <typename T>
GENESIS_INLINE void StoreSome(Floats values, T* to, int64_t count) {
  T all[kLanes];
  Store(values, all);
  std::memcpy(to, all, count * sizeof(T));
}

// Calls loop(first, number) for up to sixteen of `count` at a time.
template <typename Loop>
GENESIS_INLINE void BySixteen(int64_t count, const Loop& loop) {
  for (int64_t i = 0; i < count; i += kLanes) loop(i, std::min(kLanes, count - i));
}

template <typename T>
GENESIS_INLINE Floats LoadUpTo(const T* from, int64_t count, float rest = 0) {
  return count == kLanes ? Load(from) : LoadSome(from, count, rest);
}

template <typename T>
GENESIS_INLINE void StoreUpTo(Floats values, T* to, int64_t count) {
  if (count == kLanes) return Store(values, to);
  StoreSome(values, to, count);
}

GENESIS_INLINE Floats Larger(Floats left, Floats right) { return left > right ? left : right; }

// Returns e^x with an error of 2 units in the last place. x is clamped to the range of normal
// results, so -infinity gives 1e-38. NaN stays NaN. Method: e^x = 2^n e^r with |r| <= ln(2) / 2,
// and the minimax polynomial of Cephes' expf for e^r, by pairs of terms (Estrin), which shortens
// dependency chains.
GENESIS_INLINE Floats Exp(Floats x) {
  x = Clamped(x, -87.3f, 88.3f);
  // Adding kRound rounds to an integer, which the low bits of the sum's mantissa then hold.
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const Floats rounded = x * 1.44269504088896341f + kRound;
  const Floats n = rounded - kRound;
  const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
  const Floats square = r * r;
  const Floats high = (r * 1.9875691500e-4f + 1.3981999507e-3f) * square +
                      (r * 8.3334519073e-3f + 4.1665795894e-2f);
  const Floats power = (high * square + (r * 1.6666665459e-1f + 5.0000001201e-1f)) * square + r + 1;
  // Adds n to the exponent of the power; the shift discards the bits above n.
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(power) +
                                  (reinterpret_cast<Words>(rounded) << 23));
}

}  // namespace genesis::avx512

GENESIS_END_AVX512
