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
#include "server/ledger/event_log.h"

namespace genesis {

// The state of a job. `version` increases with every change of any job; 0 if read from the store.
struct JobSnapshot {
  training::v1::Job job;
  int64_t version = 0;
};

// Events of one job that have just become durable, oldest first; shared by its readers.
using JobEvents = std::vector<std::shared_ptr<const training::v1::JobEvent>>;

// A watcher of one job. Notify is called on the writer thread and must not block. A new watcher may
// see an older version after a newer one, and must keep the newest. Each version comes with the
// events that led to it. A version may come again, with more events.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents& events) = 0;
};

// The sender of committed changes to watchers. It keeps nothing for slow watchers: each has its own
// bounded queue. Watchers of all jobs read log(). Thread-safe. Holds no lock while it calls a
// watcher.
class EventHub {
 public:
  void Subscribe(const std::string& job_id, std::shared_ptr<JobWatcher> watcher);
  void Unsubscribe(const std::string& job_id, const JobWatcher* watcher);
  void Publish(const std::shared_ptr<const JobSnapshot>& snapshot, const JobEvents& events);
  EventLog& log() { return log_; }

 private:
  EventLog log_;
  absl::Mutex mutex_;
  std::map<std::string, std::vector<std::shared_ptr<JobWatcher>>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
