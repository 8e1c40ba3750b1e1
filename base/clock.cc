#include "base/clock.h"

#include "absl/time/clock.h"
#include "base/running_time.h"
#include "base/steady_time.h"

namespace genesis {
namespace {

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Time Steady() const override { return SteadyNow(); }
  absl::Time Running() const override { return RunningNow(); }
};

}  // namespace

const Clock& Clock::System() {
  static const SystemClock clock;
  return clock;
}

}  // namespace genesis
