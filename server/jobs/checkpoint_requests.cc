#include "server/jobs/checkpoint_requests.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/auth/ownership.h"
#include "server/jobs/job_errors.h"
#include "spdlog/spdlog.h"

namespace genesis {

namespace {

// Returns why the caller gets no checkpoint of the job, which may be null.
absl::Status Refusal(const Caller& caller, const std::string& job_id,
                     const training::v1::Job* job) {
  if (job == nullptr) return NoSuchJob(job_id);
  const std::string what = absl::StrCat("job \"", job_id, "\"");
  if (absl::Status allowed = CheckOwner(caller, job->owner(), what); !allowed.ok()) return allowed;
  if (job->state() == training::v1::JOB_STATE_RUNNING) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, " is ", ShortEnumName(job->state()),
                                                    "; only a RUNNING job can be checkpointed"));
}

}  // namespace

void CheckpointRequests::Take(const Caller& caller, const std::string& job_id,
                              const Callback<training::v1::Checkpoint>& callback) {
  writer_.Post({[this, caller, job_id, callback] {
                  const training::v1::Job* job = table_.Find(job_id);
                  const absl::Status status = Refusal(caller, job_id, job);
                  if (!status.ok()) {
                    table_.Announce([callback, status] { callback(status); });
                    return;
                  }
                  table_.Announce([this, job_id, callback, step = job->progress().step()] {
                    waiters_[job_id].push_back({callback, step});
                    Send(job_id);
                  });
                },
                callback});
}

void CheckpointRequests::Send(const std::string& job_id) {
  training::v1::AttachResponse take;
  take.mutable_take_checkpoint();
  workers_->Send(job_id, take);
}

void CheckpointRequests::SendAgain(const std::string& job_id) {
  const auto waiters = waiters_.find(job_id);
  if (waiters == waiters_.end()) return;
  for (Waiter& each : waiters->second) each.least_step = 0;
  Send(job_id);
}

void CheckpointRequests::Answer(const training::v1::Checkpoint& checkpoint) {
  const auto found = waiters_.find(checkpoint.job_id());
  if (found == waiters_.end()) return;
  std::vector<Waiter> rest;
  for (const Waiter& each : std::exchange(found->second, {})) {
    if (each.least_step <= checkpoint.step()) {
      each.callback(checkpoint);
    } else {
      rest.push_back(each);
    }
  }
  if (rest.empty()) {
    waiters_.erase(found);
  } else {
    found->second = std::move(rest);
  }
}

void CheckpointRequests::Refuse(const std::string& job_id, const absl::Status& status) {
  const auto waiters = waiters_.extract(job_id);
  if (waiters.empty()) return;
  for (const Waiter& each : waiters.mapped()) each.callback(status);
}

void CheckpointRequests::Record(const training::v1::Checkpoint& checkpoint,
                                const Callback<training::v1::Checkpoint>& callback) {
  writer_.Ask<training::v1::Checkpoint>(
      [this, checkpoint] {
        table_.PutCheckpoint(checkpoint);
        return checkpoint;
      },
      callback);
}

void CheckpointRequests::Forget(const Caller& caller, const std::string& id,
                                const Callback<training::v1::Checkpoint>& callback) {
  writer_.Ask<training::v1::Checkpoint>([this, caller, id] { return ForgetNow(caller, id); },
                                        callback);
}

absl::StatusOr<training::v1::Checkpoint> CheckpointRequests::ForgetNow(const Caller& caller,
                                                                       const std::string& id) {
  const std::optional<training::v1::Checkpoint> found = table_.FindCheckpoint(id);
  if (!found) return NoSuchCheckpoint(id);
  const training::v1::Checkpoint& checkpoint = *found;
  // Records of earlier versions have no owner. Use the owner of the job, if it is still known.
  const training::v1::Job* const writer = table_.Find(checkpoint.job_id());
  const std::string owner =
      checkpoint.owner().empty() && writer != nullptr ? writer->owner() : checkpoint.owner();
  const absl::Status allowed = CheckOwner(caller, owner, absl::StrCat("checkpoint \"", id, "\""));
  if (!allowed.ok()) return allowed;
  const std::string needed_by = NeededBy(checkpoint);
  if (!needed_by.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", needed_by, "\" has not ended and may need checkpoint ",
                     QuoteValue(id), "; delete it when the job has ended, or cancel the job"));
  }
  table_.RemoveCheckpoint(id);
  const std::string& job_id = checkpoint.job_id();
  const training::v1::Job* job = job_id.empty() ? nullptr : table_.Find(job_id);
  if (job != nullptr && job->latest_checkpoint().id() == id) FindLatest(job_id);
  table_.Count([id] { spdlog::info("checkpoint {} deleted by a user", id); });
  return checkpoint;
}

void CheckpointRequests::ForgetAfter(const std::string& job_id, int64_t step) {
  for (const training::v1::Checkpoint& each : table_.CheckpointsOf(job_id)) {
    // A checkpoint with a name is the user's.
    if (each.step() > step && each.name().empty()) table_.RemoveCheckpoint(each.id());
  }
  FindLatest(job_id);
  // A checkpoint at the step to which the job went back is enough for the pending requests.
  table_.Count([this, job_id, step] {
    const auto waiting = waiters_.find(job_id);
    if (waiting == waiters_.end()) return;
    for (Waiter& each : waiting->second) each.least_step = std::min(each.least_step, step);
  });
}

void CheckpointRequests::FindLatest(const std::string& job_id) {
  training::v1::Job* const job = table_.Edit(job_id);
  job->clear_latest_checkpoint();
  const std::vector<training::v1::Checkpoint> of_job = table_.CheckpointsOf(job_id);
  if (!of_job.empty()) *job->mutable_latest_checkpoint() = of_job.back();
}

std::string CheckpointRequests::NeededBy(const training::v1::Checkpoint& checkpoint) const {
  for (const std::string& id : table_.Ids()) {
    const training::v1::Job& job = *table_.Find(id);
    // A checkpoint named by a user is a copy. The job keeps its own checkpoints.
    const bool own = id == checkpoint.job_id() && checkpoint.name().empty();
    const JobSpec& spec = job.spec();
    if (own || spec.start_from_checkpoint() == checkpoint.id() ||
        spec.continue_from_checkpoint() == checkpoint.id()) {
      return id;
    }
  }
  return "";
}

void CheckpointRequests::RefuseWhileStoreFails() {
  const absl::Status store = writer_.store_status();
  if (store.ok()) return;
  // A checkpoint that cannot be recorded would leave callers waiting until the
  // operator frees disk space.
  for (const auto& [id, waiters] : std::exchange(waiters_, {})) {
    for (const Waiter& each : waiters) each.callback(store);
  }
}

}  // namespace genesis
