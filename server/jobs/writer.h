#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/jobs/job_table.h"

namespace genesis {

// The one thread that changes jobs. Callers queue changes; the thread applies all that wait,
// commits them in one transaction (so a burst costs one fsync) and only then lets anybody know.
// Failure: when the store refuses a commit, changes that have an answer to give (`refused`) give
// it; the rest, facts from workers, are tried again every second until the store takes them, and
// store_status() tells readiness why.
class Writer {
 public:
  struct Change {
    std::function<void()> apply;
    // Empty for facts that must not be lost.
    std::function<void(const absl::Status&)> refused;
  };

  explicit Writer(JobTable* table) : table_(table) {}
  ~Writer() { Stop(); }

  void Start();
  // Applies what waits, then ends the thread. Idempotent.
  void Stop();
  void Post(Change change);
  absl::Status store_status() const;

 private:
  void Loop();
  void ApplyAll(std::deque<Change> changes);
  void SetStoreStatus(const absl::Status& status);

  JobTable* const table_;
  std::thread thread_;
  mutable absl::Mutex mutex_;
  std::deque<Change> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status store_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
