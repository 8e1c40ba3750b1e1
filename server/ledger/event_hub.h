#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// A job as it was at one moment. `version` grows with every change of any job.
struct JobSnapshot {
  training::v1::Job job;
  int64_t version = 0;
};

// Events of one job that have just become durable, oldest first, shared by all its readers.
using JobEvents = std::vector<std::shared_ptr<const training::v1::JobEvent>>;

// One reader of one job. Notify is called on the writer thread, must not block, and may see an
// older version after a newer one once, at the start; it keeps the newest. Every version comes with
// the events that led to it; a snapshot seen before may come again with more of them.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents& events) = 0;
};

// Sends durable changes to watchers. Keeps nothing for a slow watcher: each has its own bounded
// queue. Thread-safe; no lock is held while a watcher is called.
class EventHub {
 public:
  void Subscribe(const std::string& job_id, std::shared_ptr<JobWatcher> watcher);
  void Unsubscribe(const std::string& job_id, const JobWatcher* watcher);
  void Publish(const std::shared_ptr<const JobSnapshot>& snapshot, const JobEvents& events);

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::vector<std::shared_ptr<JobWatcher>>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
