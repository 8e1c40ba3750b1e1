#include "base/steady_time.h"

#include <chrono>

#include "absl/time/clock.h"

namespace genesis {

absl::Time SteadyNow() {
  using SteadyClock = std::chrono::steady_clock;
  static const absl::Time kWallBegin = absl::Now();
  static const SteadyClock::time_point kBegin = SteadyClock::now();
  return kWallBegin + absl::FromChrono(SteadyClock::now() - kBegin);
}

}  // namespace genesis
