#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace genesis {

// A clock that stops while its process does: a steady clock minus the gaps between beats. A process
// that was stopped, or whose machine was suspended, must not blame other processes for that time.
//
// Not thread-safe.
class RunningTime {
 public:
  // Maximum counted length of a gap between two beats. It is well above the pause between beats, so
  // that a busy machine loses no time, and below the shortest deadline of one second.
  static constexpr absl::Duration kMaxGap = absl::Milliseconds(500);

  // Records that the process runs at `steady`. Returns the part of the preceding gap that is not
  // counted.
  absl::Duration Beat(absl::Time steady);
  // Returns `steady` minus all uncounted time, including that of the current gap.
  absl::Time Read(absl::Time steady) const;
  // Ends the beats: all time after `steady` counts.
  void End(absl::Time steady);

 private:
  absl::Time last_beat_ = absl::InfiniteFuture();  // Infinite while there are no beats.
  absl::Duration lost_;
};

// Returns SteadyNow() minus the time in which this process did not run while a `Heartbeat` existed.
// For deadlines that other processes must meet. Thread-safe.
absl::Time RunningNow();

// A `Heartbeat` makes RunningNow() leave out pauses of this process while it exists.
//
// Owner: the daemon. Threads: its own thread calls `on_pause` after each pause. Failure: none.
class Heartbeat {
 public:
  explicit Heartbeat(std::function<void(absl::Duration)> on_pause);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void Loop();

  const std::function<void(absl::Duration)> on_pause_;
  SteadyNotification stopping_;
  std::thread thread_;
};

}  // namespace genesis
