#pragma once

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/steady_time.h"

namespace genesis {

// A clock that stands still while its process does: a steady clock less the gaps between beats. A
// process that was stopped, or whose machine was suspended, must not blame others for that time.
//
// Not thread-safe.
class RunningTime {
 public:
  // The most that one gap between beats counts for. Well above the pause between beats, so that a
  // busy machine loses no time, and below the shortest deadline, one second.
  static constexpr absl::Duration kMaxGap = absl::Milliseconds(500);

  // The process runs at `steady`. Returns the time that the gap before it did not count.
  absl::Duration Beat(absl::Time steady);
  // `steady` less all that did not count, also before the beat that ends the present gap.
  absl::Time Read(absl::Time steady) const;
  // Nothing beats any more: from here every moment counts.
  void End(absl::Time steady);

 private:
  absl::Time last_beat_ = absl::InfiniteFuture();  // Infinite while nothing beats.
  absl::Duration lost_;
};

// SteadyNow() less the time in which this process did not run, while a `Heartbeat` exists: for
// deadlines that others must meet. Thread-safe.
absl::Time RunningNow();

// A `Heartbeat` makes RunningNow() leave out pauses of this process.
//
// Owner: the daemon. Threads: one of its own, which calls `on_pause` after each pause. Failure:
// none.
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
