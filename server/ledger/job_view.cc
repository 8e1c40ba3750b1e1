#include "server/ledger/job_view.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {

using training::v1::Checkpoint;
using training::v1::JobEvent;

std::shared_ptr<const JobSnapshot> JobView::FindInMemory(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = shown_.find(id);
  return found == shown_.end() ? nullptr : found->second.snapshot;
}

absl::StatusOr<std::shared_ptr<const JobSnapshot>> JobView::Snapshot(const std::string& id) const {
  if (std::shared_ptr<const JobSnapshot> shown = FindInMemory(id)) return shown;
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  absl::StatusOr<std::optional<StoredJob>> stored = ReadJob(**lease, id);
  if (!stored.ok()) return stored.status();
  if (!*stored) return std::shared_ptr<const JobSnapshot>();
  return std::make_shared<const JobSnapshot>(JobSnapshot{std::move((*stored)->job), 0});
}

absl::StatusOr<std::vector<StoredJob>> JobView::List(const JobQuery& query) const {
  absl::StatusOr<std::vector<StoredJob>> jobs = std::vector<StoredJob>();
  {
    absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
    if (!lease.ok()) return lease.status();
    jobs = ReadJobs(**lease, query);
  }
  if (!jobs.ok()) return jobs.status();
  for (StoredJob& each : *jobs) {
    const std::shared_ptr<const JobSnapshot> shown = FindInMemory(each.job.id());
    // If the states differ, a commit came in between. Keep the stored job, which matches the query.
    if (shown != nullptr && shown->job.state() == each.job.state()) each.job = shown->job;
  }
  return jobs;
}

std::vector<JobView::Shown> JobView::InMemory() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Shown> all;
  all.reserve(shown_.size());
  for (const auto& [id, each] : shown_) all.push_back(each);
  return all;
}

JobView::Counts JobView::CountsByState() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

absl::StatusOr<EventPage> JobView::EventsAfter(const EventQuery& query, int64_t sequence,
                                               int64_t limit, bool skip_dropped) const {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  absl::StatusOr<EventPage> page = ReadEvents(**lease, query, sequence, limit);
  if (!page.ok() || skip_dropped) return page;
  // Read afterwards, so that events dropped in between are noticed.
  const absl::StatusOr<int64_t> dropped = ReadDroppedThrough(**lease, query);
  if (!dropped.ok()) return dropped.status();
  if (sequence >= *dropped) return page;
  return absl::OutOfRangeError(absl::StrCat(
      "cursor is ", sequence, ", and some events after it are no longer kept; accepted: ", *dropped,
      " or more; 0 (or skip_dropped) returns those that are kept"));
}

absl::StatusOr<std::vector<JobEvent>> JobView::LogLines(const std::string& job_id) const {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  return ReadLogLines(**lease, job_id);
}

int64_t JobView::LastSequence() const {
  absl::MutexLock lock(&mutex_);
  return last_sequence_;
}

absl::StatusOr<std::vector<StoredCheckpoint>> JobView::Checkpoints(const std::string& job_id,
                                                                   int64_t before,
                                                                   int64_t limit) const {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  return ReadCheckpoints(**lease, job_id, before, limit);
}

absl::StatusOr<std::vector<StoredDelivery>> JobView::WebhookDeliveries(int64_t before,
                                                                       int64_t limit) const {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  return ReadWebhookDeliveries(**lease, before, limit);
}

absl::StatusOr<Checkpoint> JobView::GetCheckpoint(const std::string& id) const {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  absl::StatusOr<std::optional<Checkpoint>> found = ReadCheckpoint(**lease, id);
  if (!found.ok()) return found.status();
  if (*found) return std::move(**found);
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint \"", id, "\"; `genesisctl checkpoints` lists them"));
}

void JobView::Publish(Change change) {
  absl::MutexLock lock(&mutex_);
  for (Shown& each : change.shown) {
    std::string id = each.snapshot->job.id();
    shown_[std::move(id)] = std::move(each);
  }
  for (const std::string& id : change.dropped) shown_.erase(id);
  counts_ = std::move(change.counts);
  last_sequence_ = change.last_sequence;
}

}  // namespace genesis
