#include "base/steady_time.h"

#include <chrono>

#include "absl/time/clock.h"

namespace genesis {

absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  static const absl::Time kWallBegin = absl::Now();
  static const Clock::time_point kBegin = Clock::now();
  return kWallBegin + absl::FromChrono(Clock::now() - kBegin);
}

}  // namespace genesis
