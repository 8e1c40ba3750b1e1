#pragma once

#include <cstdint>

namespace genesis {

// How long jobs that have ended are kept. The settings retention.jobs and retention.days.
struct Retention {
  int64_t jobs = 10000;
  int64_t days = 0;  // 0: no limit.
};

}  // namespace genesis
