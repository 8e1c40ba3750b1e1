#include "server/ledger/event_hub.h"

#include <algorithm>
#include <utility>

namespace genesis {

void EventHub::Subscribe(const std::string& job_id, std::shared_ptr<JobWatcher> watcher) {
  absl::MutexLock lock(&mutex_);
  watchers_[job_id].push_back(std::move(watcher));
}

void EventHub::Unsubscribe(const std::string& job_id, const JobWatcher* watcher) {
  absl::MutexLock lock(&mutex_);
  const auto found = watchers_.find(job_id);
  if (found == watchers_.end()) return;
  auto& of_job = found->second;
  of_job.erase(std::remove_if(of_job.begin(), of_job.end(),
                              [&](const auto& each) { return each.get() == watcher; }),
               of_job.end());
  if (of_job.empty()) watchers_.erase(found);
}

void EventHub::Publish(const std::shared_ptr<const JobSnapshot>& snapshot,
                       const JobEvents& events) {
  std::vector<std::shared_ptr<JobWatcher>> of_job;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = watchers_.find(snapshot->job.id());
    if (found == watchers_.end()) return;
    of_job = found->second;
  }
  for (const auto& watcher : of_job) watcher->Notify(snapshot, events);
}

}  // namespace genesis
