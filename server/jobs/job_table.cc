#include "server/jobs/job_table.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {

using training::v1::Checkpoint;
using training::v1::Job;

absl::Status JobTable::Load() {
  absl::StatusOr<std::vector<Job>> jobs = store_->LoadJobs();
  if (!jobs.ok()) return jobs.status();
  absl::StatusOr<std::vector<Checkpoint>> checkpoints = store_->LoadCheckpoints();
  if (!checkpoints.ok()) return checkpoints.status();
  for (Job& job : *jobs) {
    std::string id = job.id();
    originals_[id] = std::nullopt;
    jobs_[std::move(id)] = {std::move(job), next_ordinal_++};
  }
  checkpoints_ = *std::move(checkpoints);
  original_checkpoints_.emplace();
  Publish();
  return absl::OkStatus();
}

const Job* JobTable::Find(const std::string& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second.job;
}

std::vector<std::string> JobTable::Ids() const {
  std::vector<std::string> ids;
  ids.reserve(jobs_.size());
  for (const auto& [id, record] : jobs_) ids.push_back(id);
  return ids;
}

std::vector<std::string> JobTable::IdsIn(JobState state) const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [id, record] : jobs_) {
    if (record.job.state() == state) found.emplace_back(record.ordinal, id);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> ids;
  ids.reserve(found.size());
  for (auto& [ordinal, id] : found) ids.push_back(std::move(id));
  return ids;
}

int JobTable::CountIn(JobState state) const {
  return static_cast<int>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& each) {
    return each.second.job.state() == state;
  }));
}

Job* JobTable::Touch(const std::string& id) {
  Record& record = jobs_.at(id);
  originals_.try_emplace(id, record);
  return &record.job;
}

void JobTable::Insert(Job job) {
  const std::string id = job.id();
  originals_.try_emplace(id, std::nullopt);
  jobs_[id] = {std::move(job), next_ordinal_++};
  to_store_.insert(id);
}

Job* JobTable::Edit(const std::string& id) {
  to_store_.insert(id);
  return Touch(id);
}

Job* JobTable::EditVolatile(const std::string& id) { return Touch(id); }

void JobTable::Move(const std::string& id, JobState to, const std::string& reason) {
  Job* job = Edit(id);
  if (!IsLegalMove(job->state(), to)) {
    spdlog::critical("defect: job {} cannot move from {} to {} ({})", id,
                     JobStateName(job->state()), JobStateName(to), reason);
    std::abort();
  }
  moves_.push_back({id, job->state(), to, reason});
  job->set_state(to);
  job->set_state_reason(reason);
}

void JobTable::PutCheckpoint(const Checkpoint& checkpoint) {
  if (!original_checkpoints_) original_checkpoints_ = checkpoints_;
  std::erase_if(checkpoints_, [&](const Checkpoint& each) { return each.id() == checkpoint.id(); });
  checkpoints_.push_back(checkpoint);
  put_checkpoints_.push_back(checkpoint);
}

void JobTable::RemoveCheckpoint(const std::string& id) {
  if (!original_checkpoints_) original_checkpoints_ = checkpoints_;
  std::erase_if(checkpoints_, [&](const Checkpoint& each) { return each.id() == id; });
  removed_checkpoints_.push_back(id);
}

std::vector<Checkpoint> JobTable::CheckpointsOf(const std::string& job_id) const {
  std::vector<Checkpoint> of_job;
  for (const Checkpoint& each : checkpoints_) {
    if (each.job_id() == job_id) of_job.push_back(each);
  }
  return of_job;
}

void JobTable::Count(std::function<void()> counting) { countings_.push_back(std::move(counting)); }

void JobTable::Announce(std::function<void()> announcement) {
  announcements_.push_back(std::move(announcement));
}

training::v1::LossCurve JobTable::BaselineOf(const std::string& workload) const {
  return store_->FindBaseline(workload).value_or(training::v1::LossCurve());
}

void JobTable::PutBaseline(const std::string& workload, const std::string& job_id,
                           const training::v1::LossCurve& curve) {
  put_baselines_.push_back({workload, job_id, curve});
}

absl::Status JobTable::Write() {
  if (to_store_.empty() && put_checkpoints_.empty() && removed_checkpoints_.empty() &&
      put_baselines_.empty()) {
    return absl::OkStatus();
  }
  absl::Status status = store_->Begin();
  if (!status.ok()) return status;
  for (const std::string& id : to_store_) {
    if (status.ok()) status = store_->PutJob(jobs_.at(id).job);
  }
  for (const MoveRecord& move : moves_) {
    if (status.ok()) status = store_->AddMove(move.job_id, move.from, move.to, move.reason);
  }
  for (const Checkpoint& each : put_checkpoints_) {
    if (status.ok()) status = store_->PutCheckpoint(each);
  }
  for (const std::string& id : removed_checkpoints_) {
    if (status.ok()) status = store_->RemoveCheckpoint(id);
  }
  for (const BaselineRecord& each : put_baselines_) {
    if (status.ok()) status = store_->PutBaseline(each.workload, each.job_id, each.curve);
  }
  if (status.ok()) return store_->Commit();
  store_->Rollback();
  return status;
}

absl::Status JobTable::Commit() {
  absl::Status status = Write();
  const std::vector<std::function<void()>> countings = std::exchange(countings_, {});
  const std::vector<std::function<void()>> announcements = std::exchange(announcements_, {});
  if (status.ok()) {
    for (const auto& count : countings) count();
    Publish();
  } else {
    Undo();
  }
  to_store_.clear();
  put_checkpoints_.clear();
  removed_checkpoints_.clear();
  moves_.clear();
  put_baselines_.clear();
  if (status.ok()) {
    for (const auto& announce : announcements) announce();
  }
  return status;
}

void JobTable::Publish() {
  std::vector<std::shared_ptr<const JobSnapshot>> changed;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, original] : originals_) {
      const Record& record = jobs_.at(id);
      auto snapshot = std::make_shared<const JobSnapshot>(JobSnapshot{record.job, ++version_});
      published_[record.ordinal] = snapshot;
      ordinals_[id] = record.ordinal;
      changed.push_back(std::move(snapshot));
    }
    if (original_checkpoints_) published_checkpoints_ = checkpoints_;
  }
  originals_.clear();
  original_checkpoints_.reset();
  for (const auto& snapshot : changed) hub_->Publish(snapshot);
}

void JobTable::Undo() {
  for (auto& [id, original] : originals_) {
    if (original) {
      jobs_[id] = *std::move(original);
    } else {
      jobs_.erase(id);
    }
  }
  if (original_checkpoints_) checkpoints_ = *std::move(original_checkpoints_);
  originals_.clear();
  original_checkpoints_.reset();
}

std::shared_ptr<const JobSnapshot> JobTable::Snapshot(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = ordinals_.find(id);
  return found == ordinals_.end() ? nullptr : published_.at(found->second);
}

std::vector<std::shared_ptr<const JobSnapshot>> JobTable::Snapshots() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<const JobSnapshot>> all;
  all.reserve(published_.size());
  for (const auto& [ordinal, snapshot] : published_) all.push_back(snapshot);
  return all;
}

std::vector<Checkpoint> JobTable::PublishedCheckpoints() const {
  absl::MutexLock lock(&mutex_);
  return published_checkpoints_;
}

}  // namespace genesis
