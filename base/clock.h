#pragma once

#include "absl/time/time.h"

namespace genesis {

// A source of time that tests can replace, so they need not wait.
//
// Thread-safe. Failure: none.
class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the wall clock, for times that people and other processes read.
  virtual absl::Time Now() const = 0;
  // Returns SteadyNow() of base/steady_time.h, for deadlines and durations.
  virtual absl::Time Steady() const = 0;
  // Returns RunningNow() of base/running_time.h, for deadlines that other processes must meet. It
  // does not advance while this process is stopped.
  virtual absl::Time Running() const { return Steady(); }

  // Returns the system clock, which lives as long as the program.
  static const Clock& System();
};

}  // namespace genesis
