#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "server/base/callback.h"
#include "server/ledger/job_table.h"

namespace genesis {

// The only thread that changes jobs. Callers queue changes. The thread applies all queued
// changes, commits them in one transaction (so a burst costs one fsync), and only then makes them
// visible. Failure: if the store refuses a commit, changes with a `refused` callback get its
// error. All other changes, which are worker reports, are retried every second until the store
// accepts them. Meanwhile store_status() says why the daemon is not ready. Log lines and
// retention are written when due; the remaining log lines also when the thread ends.
class Writer {
 public:
  struct Change {
    std::function<void()> apply;
    // Empty for changes that must not be lost, such as worker reports.
    std::function<void(const absl::Status&)> refused;
  };

  // `on_tick`, for all that depends on time alone, runs a few times a second as a change.
  Writer(JobTable* table, std::function<void()> on_tick)
      : table_(table), on_tick_(std::move(on_tick)) {}
  ~Writer() { Stop(); }

  void Start();
  // Applies the queued changes, then ends the thread. Idempotent.
  void Stop();
  void Post(Change change);
  // Posts a change that has a result. Runs the callback once the change is durable.
  template <typename T>
  void Ask(std::function<absl::StatusOr<T>()> apply, const Callback<T>& callback) {
    Post({[table = table_, apply = std::move(apply), callback] {
            absl::StatusOr<T> result = apply();
            table->Announce([callback, result = std::move(result)] { callback(result); });
          },
          callback});
  }
  absl::Status store_status() const;

 private:
  void Loop();
  void ApplyAll(std::deque<Change> changes);
  void SetStoreStatus(const absl::Status& status);

  JobTable* const table_;
  const std::function<void()> on_tick_;
  absl::Time next_tick_ = absl::InfinitePast();  // Used by the thread only.
  std::thread thread_;
  mutable absl::Mutex mutex_;
  SteadyCondition changed_;
  std::deque<Change> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status store_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
