#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace genesis {

// Now, for deadlines and durations: the wall clock as it stood when the process began, and from
// there the monotonic clock, so that a clock that is set changes no wait. Times that people or
// other processes read are absl::Now()'s.
absl::Time SteadyNow();

// A condition variable for an absl::Mutex whose timeouts follow SteadyNow(). Timeouts of absl
// follow the wall clock: an hour by which it is set back is an hour more to wait.
//
// Thread-safe.
class SteadyCondition {
 public:
  // After the state that a waiter's predicate reads has changed.
  void NotifyAll() { changed_.notify_all(); }

  // Waits until `holds()` or `deadline`; returns holds(). `mutex` is held, before and after;
  // `holds` is called with it held.
  template <typename Predicate>
  bool WaitUntil(absl::Mutex& mutex, absl::Time deadline, Predicate holds) {
    Held held{mutex};
    while (!holds()) {
      const absl::Duration left = deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      // Far deadlines are waited for in pieces: a clock's numbers end.
      changed_.wait_for(held, absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
    }
    return true;
  }

 private:
  struct Held {
    absl::Mutex& mutex;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }
  };
  std::condition_variable_any changed_;
};

// An absl::Notification with timeouts that follow SteadyNow(). Thread-safe.
class SteadyNotification {
 public:
  void Notify() {
    absl::MutexLock lock(&mutex_);
    notified_ = true;
    changed_.NotifyAll();
  }
  // Whether it was notified before the timeout.
  bool WaitFor(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    return changed_.WaitUntil(mutex_, SteadyNow() + timeout,
                              [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return notified_; });
  }

 private:
  absl::Mutex mutex_;
  SteadyCondition changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace genesis
