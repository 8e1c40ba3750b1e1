#pragma once

#include <cstdint>

namespace genesis {

// The finalizer of splitmix64.
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// splitmix64 (Steele et al., 2014), one of many streams of a seed. Gives the same numbers on every
// machine, which the distributions of <random> do not guarantee.
class SplitMix64 {
 public:
  SplitMix64(uint64_t seed, uint64_t stream) : state_(Mix(Mix(seed) + stream)) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    return Mix(state_);
  }
  // Returns 0 to n - 1, uniformly. Requires n >= 1.
  uint64_t Below(uint64_t n) {
    const uint64_t biased = (0 - n) % n;  // 2^64 mod n
    uint64_t random = 0;
    do {
      random = Next();
    } while (random < biased);
    return random % n;
  }
  // Returns a multiple of 2^-53 in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Returns a number in [-1, 1).
  double Signed() { return 2 * Uniform() - 1; }

 private:
  uint64_t state_;
};

}  // namespace genesis
