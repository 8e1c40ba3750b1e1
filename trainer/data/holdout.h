#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainer/data/splitmix.h"

namespace genesis {

// Returns how many of `count` are held out: the rounded fraction, but at least one, and at least
// one is left to train on. Requires count >= 2.
inline int64_t HeldOut(int64_t count, double fraction) {
  const auto wanted = std::llround(fraction * static_cast<double>(count));
  return std::clamp<int64_t>(wanted, 1, count - 1);
}

// Returns whether the episode that begins with transition `first` is held out when a job follows a
// replay buffer. A hash decides, so that an episode never moves between the parts.
inline bool IsHeldOut(uint64_t first, double fraction) {
  return SplitMix64(first, 0).Uniform() < fraction;
}

}  // namespace genesis
