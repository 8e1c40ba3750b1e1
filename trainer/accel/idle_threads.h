#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace genesis {

// How the threads of the arithmetic library wait for their next piece of work, some hundred times a
// step. Awake for a moment (GOMP_SPINCOUNT) they are there at once, but keep the processor from
// whoever else wants it, who may be the thread that they wait for: beside one busy program a step
// took five times as long. So they stay awake while this thread hardly waits for a processor, and
// sleep at once while it does.
//
// libgomp reads its settings once, but never spins while its threads are more than the processors.
// So a team of further threads, which sleep and do nothing else, is the switch.
//
// Owner: the run. Threads: the one that trains. Failure: none; where the kernel keeps no account of
// waiting (/proc/thread-self/schedstat), or the settings are the caller's own, nothing changes.
class IdleThreads {
 public:
  using Clock = std::chrono::steady_clock;
  // Time that the calling thread was ready and waited for a processor, since it began.
  using Waited = std::function<std::optional<std::chrono::nanoseconds>()>;

  // For a job that computes with `threads` threads, of a program that RestartWithSettings began
  // (trainer/accel/start_settings.h). They stay awake until a look finds otherwise.
  explicit IdleThreads(int threads, Waited waited = &WaitedInKernel);
  ~IdleThreads();
  IdleThreads(const IdleThreads&) = delete;
  IdleThreads& operator=(const IdleThreads&) = delete;

  // Once in each step: looks, at most once a second.
  void Adapt(Clock::time_point now = Clock::now());
  bool awake() const { return crowd_ == nullptr; }

  static std::optional<std::chrono::nanoseconds> WaitedInKernel();

 private:
  class Crowd;

  const int crowd_size_;  // 0 where there is nothing to switch.
  const Waited waited_;
  std::unique_ptr<Crowd> crowd_;
  std::optional<Clock::time_point> looked_;
  std::chrono::nanoseconds waited_then_{0};
};

}  // namespace genesis
