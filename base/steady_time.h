#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace genesis {

// Returns the current time for deadlines and durations: the wall clock at the start of the process,
// advanced by the monotonic clock. Setting the wall clock therefore changes no wait. For times that
// people or other processes read, use absl::Now().
absl::Time SteadyNow();

// A condition variable for use with absl::Mutex. Its timeouts follow SteadyNow(). Timeouts of absl
// follow the wall clock: setting it back an hour extends a wait by an hour.
//
// Thread-safe.
class SteadyCondition {
 public:
  // Call after changing the state that a waiter's predicate reads.
  void NotifyAll() { changed_.notify_all(); }

  // Waits until `holds()` or `deadline`; returns holds(). The caller holds `mutex`, and `holds` is
  // called with it held.
  template <typename Predicate>
  bool WaitUntil(absl::Mutex& mutex, absl::Time deadline, Predicate holds) {
    Held held{mutex};
    while (!holds()) {
      const absl::Duration left = deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      // Wait for far deadlines in pieces, so that the clock's numbers cannot overflow.
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
  // Returns whether it was notified before the timeout.
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
