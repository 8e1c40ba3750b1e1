#pragma once

#include <algorithm>
#include <cstdint>

namespace genesis {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns part `part` of `parts` of `count` numbers in memory. Parts consist of whole runs of 64,
// so that no two writers share a cache line and vector loops treat each run as in the whole array.
// Some parts are empty if `count` is small.
inline IndexRange PartOf(int64_t count, int part, int parts) {
  constexpr int64_t kRun = 64;
  const int64_t runs = (count + kRun - 1) / kRun;
  return {.begin = std::min(count, runs * part / parts * kRun),
          .end = std::min(count, runs * (part + 1) / parts * kRun)};
}

}  // namespace genesis
