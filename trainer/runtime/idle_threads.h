#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace genesis {

// An `IdleThreads` controls how the OpenMP threads wait for their next piece of work, some hundred
// times a step. Spinning threads (GOMP_SPINCOUNT) resume immediately, but take the processor from
// others, perhaps from the one that they wait for: next to one busy program a step took five times
// as long. So they spin while the training thread rarely waits for a processor; otherwise they
// sleep immediately.
//
// libgomp reads its settings once, but never spins while it has more threads than processors. A
// team of additional threads that only sleep is therefore the switch.
//
// Owner: the run. Threads: the training thread. Failure: none; nothing changes if the kernel does
// not account for waiting (/proc/thread-self/schedstat) or the user has set the variables.
class IdleThreads {
 public:
  using Clock = std::chrono::steady_clock;
  // Returns the total time that the calling thread was ready and waited for a processor.
  using Waited = std::function<std::optional<std::chrono::nanoseconds>()>;

  // Serves a job with `threads` compute threads, in a program started by RestartWithSettings
  // (trainer/runtime/start_settings.h). The threads spin until a check finds contention.
  explicit IdleThreads(int threads, Waited waited = &WaitedInKernel);
  ~IdleThreads();
  IdleThreads(const IdleThreads&) = delete;
  IdleThreads& operator=(const IdleThreads&) = delete;

  // Checks, at most once a second, whether the threads should spin. Call once in each step.
  void Adapt(Clock::time_point now = Clock::now());
  bool awake() const { return crowd_ == nullptr; }

  static std::optional<std::chrono::nanoseconds> WaitedInKernel();

 private:
  class Crowd;

  const int crowd_size_;  // 0 if there is nothing to switch.
  const Waited waited_;
  std::unique_ptr<Crowd> crowd_;
  std::optional<Clock::time_point> looked_;
  std::chrono::nanoseconds waited_then_{0};
};

}  // namespace genesis
