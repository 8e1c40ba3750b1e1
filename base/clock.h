#pragma once

#include "absl/time/time.h"

namespace genesis {

// A source of time, so that rules about time are tested without waiting.
//
// Thread-safe. Failure: none.
class Clock {
 public:
  virtual ~Clock() = default;
  // The wall clock, for times that people and other processes read.
  virtual absl::Time Now() const = 0;
  // SteadyNow() of base/steady_time.h, for deadlines and durations.
  virtual absl::Time Steady() const = 0;
  // RunningNow() of base/running_time.h, for deadlines that others must meet: it stands still while
  // this process does.
  virtual absl::Time Running() const { return Steady(); }

  // The clock of this machine. Lives as long as the program.
  static const Clock& System();
};

}  // namespace genesis
