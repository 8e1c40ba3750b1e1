#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/auth/caller.h"
#include "server/base/io_threads.h"
#include "server/ledger/event_log.h"
#include "server/ledger/job_view.h"

namespace genesis {

// A reader of the events of all jobs. OnEvents and OnSecond run on the thread of EventWatches, and
// may block it for reads from the store; OnStop runs on the thread that calls Stop or Add.
class EventWatcher {
 public:
  virtual ~EventWatcher() = default;
  // Called when there may be new events.
  virtual void OnEvents() = 0;
  // Called once a second, with the jobs that changed since the previous call.
  virtual void OnSecond(const std::vector<std::shared_ptr<const JobSnapshot>>& changed) = 0;
  // Called when the daemon stops. The watcher must end now.
  virtual void OnStop() = 0;
};

// The readers of the events of all jobs, of every transport. A commit only wakes a thread, which
// then calls every reader, so the writer's time does not depend on their number.
//
// Owner: the daemon. Threads: any. Failure: RESOURCE_EXHAUSTED from Wait.
class EventWatches {
 public:
  EventWatches(EventLog* log, const JobView* view);
  ~EventWatches();

  // The callbacks of a call of Wait.
  struct Answer {
    // Called after new events and once a second, until it has completed the call and returns true.
    // `last` is true after the timeout or if the daemon stops; it must then complete the call.
    std::function<bool(bool last)> attempt;
    // Called instead when Caller::check fails.
    std::function<void(const absl::Status&)> refuse;
  };
  // Calls `answer` now and later until it has completed the call. RESOURCE_EXHAUSTED if the caller
  // or all callers have too many open waits.
  absl::Status Wait(const Caller& caller, absl::Duration timeout, Answer answer);

  // Calls the watcher from now on. After Stop, its OnStop is called at once.
  void Add(const std::shared_ptr<EventWatcher>& watcher);
  void Remove(const EventWatcher* watcher);
  // Makes OnSecond run once a second. Called a few times a second by one thread.
  void Tend();
  // Ends all watchers, and those added later.
  void Stop();

  const EventLog& log() const { return *log_; }
  void Post(std::function<void()> task) { threads_.Post(std::move(task)); }

 private:
  class Waiting;

  void Wake();
  std::vector<std::shared_ptr<EventWatcher>> Current() const;
  void Second();

  EventLog* const log_;
  const JobView* const view_;
  std::atomic<bool> woken_ = false;
  absl::Time next_second_ = absl::InfinitePast();  // Used by the thread of Tend.
  int64_t seen_version_ = -1;  // Used by the thread of `threads_`; -1 without watchers.
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<const EventWatcher*, std::weak_ptr<EventWatcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> waits_of_ ABSL_GUARDED_BY(mutex_);  // Open waits of each caller.
  int waits_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads threads_{1};  // Last, because its tasks use the members above.
};

}  // namespace genesis
