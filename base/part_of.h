#pragma once

#include <algorithm>
#include <cstdint>

namespace genesis {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Part number `part` of `parts` of `count` numbers in memory: whole runs of 64, so that no two
// writers share a line of the cache and vector loops make of each run what they make of the whole.
// Some are empty where there are few numbers.
inline IndexRange PartOf(int64_t count, int part, int parts) {
  constexpr int64_t kRun = 64;
  const int64_t runs = (count + kRun - 1) / kRun;
  return {.begin = std::min(count, runs * part / parts * kRun),
          .end = std::min(count, runs * (part + 1) / parts * kRun)};
}

}  // namespace genesis
