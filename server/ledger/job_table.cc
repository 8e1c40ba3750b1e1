#include "server/ledger/job_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "base/text/enum_names.h"
#include "base/timestamp.h"
#include "server/ledger/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::Job;
using training::v1::JobEvent;

// Returns the value that was read; logs an error and returns an empty value if the read failed.
template <typename Value>
Value ValueOrLog(absl::StatusOr<Value> read, const char* what, const std::string& id) {
  if (read.ok()) return *std::move(read);
  spdlog::error("cannot read {} \"{}\": {}", what, id, read.status().ToString());
  return Value();
}

}  // namespace

absl::Status JobTable::Load() {
  Database& database = store_->database();
  absl::StatusOr<std::vector<StoredJob>> open = ReadOpenJobs(database);
  if (!open.ok()) return open.status();
  absl::StatusOr<JobView::Counts> counts = CountJobsByState(database);
  if (!counts.ok()) return counts.status();
  const absl::StatusOr<int64_t> ordinal = ReadLastOrdinal(database);
  if (!ordinal.ok()) return ordinal.status();
  const absl::StatusOr<int64_t> sequence = ReadLastSequence(database);
  if (!sequence.ok()) return sequence.status();
  next_ordinal_ = *ordinal + 1;
  last_sequence_ = *sequence;
  hub_->log().BeginAfter(last_sequence_);
  counts_ = *std::move(counts);
  JobView::Change change{{}, {}, counts_, last_sequence_};
  for (StoredJob& each : *open) {
    change.shown.push_back(
        {std::make_shared<const JobSnapshot>(JobSnapshot{each.job, ++version_}), each.ordinal});
    std::string id = each.job.id();
    jobs_[std::move(id)] = {std::move(each.job), each.ordinal};
  }
  view_.Publish(std::move(change));
  return absl::OkStatus();
}

JobTable::Record* JobTable::Keep(StoredJob stored) const {
  std::string id = stored.job.id();
  const auto [place, is_new] = jobs_.try_emplace(id);
  if (is_new) {
    place->second = {std::move(stored.job), stored.ordinal};
    ended_.push_back(std::move(id));  // An unfinished job is in memory already.
  }
  return &place->second;
}

JobTable::Record* JobTable::Fetch(const std::string& id) const {
  const auto found = jobs_.find(id);
  if (found != jobs_.end()) return &found->second;
  if (pending_.removed.contains(id)) return nullptr;
  std::optional<StoredJob> stored = ValueOrLog(ReadJob(store_->database(), id), "job", id);
  return stored ? Keep(*std::move(stored)) : nullptr;
}

const Job* JobTable::Find(const std::string& id) const {
  const Record* record = Fetch(id);
  return record == nullptr ? nullptr : &record->job;
}

const Job* JobTable::FindByRequestId(const std::string& request_id) const {
  if (request_id.empty()) return nullptr;
  // The store does not have the jobs accepted since the last commit.
  for (const auto& [id, original] : pending_.originals) {
    const auto found = jobs_.find(id);
    if (found != jobs_.end() && found->second.job.request_id() == request_id) {
      return &found->second.job;
    }
  }
  std::optional<StoredJob> stored =
      ValueOrLog(ReadJobByRequestId(store_->database(), request_id), "request id", request_id);
  if (!stored || pending_.removed.contains(stored->job.id())) return nullptr;
  return &Keep(*std::move(stored))->job;
}

std::vector<std::string> JobTable::Ids() const {
  std::vector<std::string> ids;
  for (const auto& [id, record] : jobs_) {
    if (!IsFinal(record.job.state())) ids.push_back(id);
  }
  return ids;
}

std::vector<std::string> JobTable::IdsIn(JobState state) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [id, record] : jobs_) {
    if (record.job.state() == state) found.emplace_back(record.ordinal, id);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> ids;
  for (auto& [ordinal, id] : found) ids.push_back(std::move(id));
  return ids;
}

int JobTable::CountIn(JobState state) const {
  return static_cast<int>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& each) {
    return each.second.job.state() == state;
  }));
}

Job* JobTable::Touch(const std::string& id) {
  Record* record = Fetch(id);
  if (record == nullptr) {
    spdlog::critical("defect: there is no job {} to change", id);
    std::abort();
  }
  pending_.originals.try_emplace(id, *record);
  return &record->job;
}

void JobTable::Insert(Job job) {
  const std::string id = job.id();
  pending_.originals.try_emplace(id, std::nullopt);
  jobs_[id] = {std::move(job), next_ordinal_++};
  pending_.to_store.insert(id);
}

Job* JobTable::Edit(const std::string& id) {
  pending_.to_store.insert(id);
  return Touch(id);
}

Job* JobTable::EditVolatile(const std::string& id) { return Touch(id); }

void JobTable::Move(const std::string& id, JobState to, const std::string& reason) {
  Job* job = Edit(id);
  if (!IsLegalMove(job->state(), to)) {
    spdlog::critical("defect: job {} cannot move from {} to {} ({})", id,
                     ShortEnumName(job->state()), ShortEnumName(to), reason);
    std::abort();
  }
  JobEvent event;
  event.mutable_state_changed()->set_from(job->state());
  event.mutable_state_changed()->set_to(to);
  event.mutable_state_changed()->set_reason(reason);
  job->set_state(to);
  job->set_state_reason(reason);
  AddEvent(id, std::move(event));
}

void JobTable::Remove(const std::string& id, bool with_checkpoints) {
  const Job removed = *Touch(id);
  jobs_.erase(id);
  pending_.to_store.erase(id);
  pending_.removed[id] = with_checkpoints;
  events_.Drop(id);
  QueueDeletion({id, removed.state(), removed.owner(), removed.labels()}, /*by_retention=*/false);
}

// Sets the fields that all kinds of events have.
JobEvent JobTable::Complete(const std::string& job_id, JobEvent event) const {
  if (!event.has_time()) *event.mutable_time() = ToTimestamp(clock_.Now());
  event.set_job_id(job_id);
  if (const Job* job = Find(job_id); job != nullptr) {
    event.set_owner(job->owner());
    event.set_state(job->state());
  }
  return event;
}

void JobTable::QueueDeletion(const JobStore::Forgotten& job, bool by_retention) {
  JobEvent event;
  *event.mutable_time() = ToTimestamp(clock_.Now());
  event.set_job_id(job.id);
  event.set_owner(job.owner);
  event.set_state(job.state);
  event.mutable_deleted()->set_by_retention(by_retention);
  events_.Add(std::move(event), job.labels);
}

void JobTable::AddEvent(const std::string& job_id, JobEvent event) {
  const Job* job = Find(job_id);
  events_.Add(Complete(job_id, std::move(event)), job != nullptr ? job->labels() : Labels());
  pending_.must_write = true;
}

void JobTable::AddLogLine(const std::string& job_id, const std::string& line) {
  JobEvent event;
  event.set_log_line(line);
  events_.AddLine(Complete(job_id, std::move(event)), clock_.Steady());
  if (events_.full()) pending_.must_write = true;
}

std::vector<JobEvent> JobTable::EventsOf(const std::string& job_id,
                                         const std::vector<std::string>& kinds) const {
  const EventQuery query{.job_id = job_id, .kinds = kinds};
  auto events = ValueOrLog(ReadAllEvents(store_->database(), query), "events of", job_id);
  events_.AppendMatching(query, events);
  return events;
}

void JobTable::PutCheckpoint(const Checkpoint& checkpoint) {
  pending_.removed_checkpoints.erase(checkpoint.id());
  pending_.updated_checkpoints.erase(checkpoint.id());
  pending_.put_checkpoints.push_back(checkpoint);
}

void JobTable::UpdateCheckpoint(const Checkpoint& checkpoint) {
  pending_.updated_checkpoints[checkpoint.id()] = checkpoint;
}

void JobTable::RemoveCheckpoint(const std::string& id) {
  pending_.updated_checkpoints.erase(id);
  std::erase_if(pending_.put_checkpoints, [&](const Checkpoint& each) { return each.id() == id; });
  pending_.removed_checkpoints.insert(id);
}

std::vector<Checkpoint> JobTable::CheckpointsOf(const std::string& job_id) const {
  constexpr int64_t kMax = 10000;  // More than a job can have.
  std::vector<StoredCheckpoint> stored =
      ValueOrLog(ReadCheckpoints(store_->database(), job_id, 0, kMax), "checkpoints of", job_id);
  std::vector<Checkpoint> of_job;
  for (auto it = stored.rbegin(); it != stored.rend(); ++it) {
    const std::string& id = it->checkpoint.id();
    const bool replaced =
        std::any_of(pending_.put_checkpoints.begin(), pending_.put_checkpoints.end(),
                    [&](const Checkpoint& each) { return each.id() == id; });
    if (!replaced && !pending_.removed_checkpoints.contains(id)) {
      of_job.push_back(std::move(it->checkpoint));
    }
  }
  for (const Checkpoint& each : pending_.put_checkpoints) {
    if (each.job_id() == job_id) of_job.push_back(each);
  }
  const auto& updated = pending_.updated_checkpoints;
  for (Checkpoint& each : of_job) {
    if (updated.contains(each.id())) each = updated.at(each.id());
  }
  return of_job;
}

std::optional<Checkpoint> JobTable::FindCheckpoint(const std::string& id) const {
  if (pending_.updated_checkpoints.contains(id)) return pending_.updated_checkpoints.at(id);
  for (const Checkpoint& each : pending_.put_checkpoints) {
    if (each.id() == id) return each;
  }
  if (pending_.removed_checkpoints.contains(id)) return std::nullopt;
  return ValueOrLog(ReadCheckpoint(store_->database(), id), "checkpoint", id);
}

training::v1::LossCurve JobTable::BaselineOf(const std::string& workload) const {
  return store_->FindBaseline(workload).value_or(training::v1::LossCurve());
}

void JobTable::PutBaseline(const std::string& workload, const std::string& job_id,
                           const training::v1::LossCurve& curve) {
  pending_.baselines.push_back({workload, job_id, curve});
}

std::optional<std::string> JobTable::Metadata(const std::string& key) const {
  const auto found = pending_.facts.find(key);
  if (found != pending_.facts.end()) return found->second;
  return ValueOrLog(ReadMetadata(store_->database(), key), "fact", key);
}

void JobTable::PutMetadata(const std::string& key, std::string value) {
  pending_.facts[key] = std::move(value);
}

void JobTable::AddWrite(std::function<absl::Status(Database&)> write) {
  pending_.writes.push_back(std::move(write));
}

void JobTable::Count(std::function<void()> counting) {
  pending_.countings.push_back(std::move(counting));
}

void JobTable::Announce(std::function<void()> announcement) {
  pending_.announcements.push_back(std::move(announcement));
}

}  // namespace genesis
