// The part of JobTable that makes changes durable, publishes them, or undoes them.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "server/ledger/job_state.h"
#include "server/ledger/job_table.h"

namespace genesis {
namespace {

// Maximum finished jobs kept in memory: those just written are requested most often.
constexpr size_t kMaxEnded = 64;
// Maximum jobs that one transaction removes, so that no call waits long for it.
constexpr int64_t kForgetBatch = 32;
constexpr absl::Duration kAgeCheckPeriod = absl::Minutes(1);
constexpr absl::Duration kRetryPause = absl::Seconds(1);

int64_t Ended(const JobView::Counts& counts) {
  int64_t ended = 0;
  for (const auto& [state, count] : counts) {
    if (IsFinal(state)) ended += count;
  }
  return ended;
}

}  // namespace

absl::Status JobTable::Commit() {
  const absl::Time now = clock_.Steady();
  const bool writes = MustWrite(now);
  absl::Status status = writes ? Write(now) : absl::OkStatus();
  const std::vector<std::function<void()>> countings = std::exchange(pending_.countings, {});
  const std::vector<std::function<void()>> announcements =
      std::exchange(pending_.announcements, {});
  if (status.ok()) {
    for (const auto& count : countings) count();
    Settle(writes);
  } else {
    Undo();
    retry_ = now + kRetryPause;
  }
  pending_ = Pending();
  if (status.ok()) {
    for (const auto& announce : announcements) announce();
  }
  return status;
}

void JobTable::Discard() {
  Undo();
  pending_ = Pending();
}

absl::Status JobTable::Flush() {
  pending_.must_write = pending_.must_write || !events_.empty();
  return Commit();
}

absl::Time JobTable::NextDue() const {
  absl::Time due = events_.due();
  if (retention_.days > 0) due = std::min(due, next_age_check_);
  if (IsOverLimit()) due = absl::InfinitePast();
  return std::max(due, retry_);
}

bool JobTable::IsOverLimit() const { return Ended(counts_) > retention_.jobs; }

bool JobTable::MustWrite(absl::Time now) const {
  return pending_.must_write || !pending_.to_store.empty() || !pending_.removed.empty() ||
         !pending_.put_checkpoints.empty() || !pending_.updated_checkpoints.empty() ||
         !pending_.removed_checkpoints.empty() || !pending_.baselines.empty() ||
         !pending_.facts.empty() || !pending_.writes.empty() || now >= NextDue();
}

absl::Status JobTable::Write(absl::Time now) {
  absl::Status status = store_->Begin();
  if (!status.ok()) return status;
  status = WriteChanges();
  if (status.ok()) status = Forget(now);
  if (status.ok()) status = events_.Write(*store_);
  if (status.ok()) return store_->Commit();
  store_->Rollback();
  return status;
}

absl::Status JobTable::WriteChanges() {
  absl::Status status;
  for (const auto& [id, with_checkpoints] : pending_.removed) {
    if (status.ok()) status = store_->RemoveJob(id, with_checkpoints);
  }
  for (const std::string& id : pending_.to_store) {
    const Record& record = jobs_.at(id);
    if (status.ok()) status = store_->PutJob(record.ordinal, record.job);
  }
  for (const training::v1::Checkpoint& each : pending_.put_checkpoints) {
    if (status.ok()) status = store_->PutCheckpoint(each);
  }
  for (const auto& [id, checkpoint] : pending_.updated_checkpoints) {
    if (status.ok()) status = store_->UpdateCheckpoint(checkpoint);
  }
  for (const std::string& id : pending_.removed_checkpoints) {
    if (status.ok()) status = store_->RemoveCheckpoint(id);
  }
  for (const BaselineRecord& each : pending_.baselines) {
    if (status.ok()) status = store_->PutBaseline(each.workload, each.job_id, each.curve);
  }
  for (const auto& [key, value] : pending_.facts) {
    if (status.ok()) status = store_->PutMetadata(key, value);
  }
  for (const auto& write : pending_.writes) {
    if (status.ok()) status = write(store_->database());
  }
  return status;
}

int64_t JobTable::EndedAfterCommit() const {
  int64_t ended = Ended(counts_);
  for (const auto& [id, original] : pending_.originals) {
    if (original && IsFinal(original->job.state())) --ended;
    const auto found = jobs_.find(id);
    if (found != jobs_.end() && IsFinal(found->second.job.state())) ++ended;
  }
  return ended;
}

absl::Status JobTable::Forget(absl::Time now) {
  forgotten_.clear();
  const int64_t surplus = std::max<int64_t>(0, EndedAfterCommit() - retention_.jobs);
  const bool by_age = retention_.days > 0 && now >= next_age_check_;
  if (surplus == 0 && !by_age) return absl::OkStatus();
  const absl::Time oldest = clock_.Now() - absl::Hours(24 * retention_.days);
  absl::StatusOr<std::vector<JobStore::Forgotten>> forgotten =
      store_->ForgetEnded(surplus, by_age ? absl::ToUnixSeconds(oldest) : 0, kForgetBatch);
  if (!forgotten.ok()) return forgotten.status();
  forgotten_ = *std::move(forgotten);
  for (const JobStore::Forgotten& each : forgotten_) {
    QueueDeletion(each, /*by_retention=*/true);
  }
  // A full batch may have left jobs to remove.
  const bool more = static_cast<int64_t>(forgotten_.size()) == kForgetBatch;
  if (by_age && !more) next_age_check_ = now + kAgeCheckPeriod;
  if (forgotten_.empty() && surplus > 0) retry_ = now + kRetryPause;
  return absl::OkStatus();
}

// Publishes a commit to readers and watchers.
void JobTable::Settle(bool written) {
  std::map<std::string, JobEvents> told;
  std::vector<EventLog::Entry> events;
  if (written) {
    events = events_.Take();
  } else {
    events_.Settle();
  }
  for (const auto& [event, labels] : events) {
    last_sequence_ = std::max(last_sequence_, event->sequence());
    told[event->job_id()].push_back(event);
  }
  JobView::Change change = CollectChange();
  std::map<std::string, std::shared_ptr<const JobSnapshot>> changed;
  for (const JobView::Shown& each : change.shown) {
    changed[each.snapshot->job.id()] = each.snapshot;
    told.try_emplace(each.snapshot->job.id());
  }
  view_.Publish(std::move(change));
  std::erase_if(events, [](const auto& each) { return each.event->has_log_line(); });
  hub_->log().Append(std::move(events));
  for (const auto& [id, of_job] : told) {
    std::shared_ptr<const JobSnapshot>& snapshot = changed[id];
    if (snapshot == nullptr) snapshot = view_.Snapshot(id).value_or(nullptr);
    if (snapshot != nullptr) hub_->Publish(snapshot, of_job);
  }
}

JobView::Change JobTable::CollectChange() {
  JobView::Change change;
  for (const auto& [id, original] : pending_.originals) {
    if (original) --counts_[original->job.state()];
    if (original && pending_.removed.contains(id)) on_forgotten_(original->job.state());
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
      change.dropped.push_back(id);
      continue;
    }
    const Record& record = found->second;
    ++counts_[record.job.state()];
    auto snapshot = std::make_shared<const JobSnapshot>(JobSnapshot{record.job, ++version_});
    change.shown.push_back({std::move(snapshot), record.ordinal});
    if (!IsFinal(record.job.state())) continue;
    if (std::find(ended_.begin(), ended_.end(), id) == ended_.end()) ended_.push_back(id);
  }
  for (const JobStore::Forgotten& each : std::exchange(forgotten_, {})) {
    --counts_[each.state];
    on_forgotten_(each.state);
    jobs_.erase(each.id);
    change.dropped.push_back(each.id);
  }
  DropOldEnded(&change.dropped);
  change.counts = counts_;
  change.last_sequence = last_sequence_;
  return change;
}

void JobTable::DropOldEnded(std::vector<std::string>* dropped) {
  std::erase_if(ended_, [this](const std::string& id) { return !jobs_.contains(id); });
  while (ended_.size() > kMaxEnded) {
    jobs_.erase(ended_.front());
    dropped->push_back(std::move(ended_.front()));
    ended_.pop_front();
  }
}

void JobTable::Undo() {
  for (auto& [id, original] : pending_.originals) {
    if (original) {
      jobs_[id] = *std::move(original);
    } else {
      jobs_.erase(id);
    }
  }
  forgotten_.clear();
  events_.Undo();
  JobView::Change change{{}, {}, counts_, last_sequence_};
  DropOldEnded(&change.dropped);
  view_.Publish(std::move(change));
}

}  // namespace genesis
