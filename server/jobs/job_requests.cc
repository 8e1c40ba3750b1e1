// What users wish of jobs: a part of JobManager. The public methods post a change; the others apply
// it on the writer thread.
#include <google/protobuf/util/message_differencer.h>
#include <sys/random.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/field_error.h"
#include "base/steady_time.h"
#include "base/timestamp.h"
#include "config/job/job_paths.h"
#include "config/job/job_sections.h"
#include "server/jobs/job_errors.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using training::v1::Job;
using training::v1::JobSpec;
using training::v1::TrainRequest;

constexpr size_t kLongestRequestId = 255;
constexpr size_t kMaxPathChecks = 64;

absl::Status HasEnded(const Job& job, const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.id(), "\" has ended as ", JobStateName(job.state()), "; ", what));
}

std::string NewJobId() {
  uint64_t random = 0;
  while (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
  }
  return absl::StrFormat("job-%012x", random & 0xffffffffffffULL);
}

// Whether what a job names is there, beneath the root and no link out of it.
std::optional<FieldError> PathError(const std::string& datasets_root, const JobPath& named) {
  namespace fs = std::filesystem;
  const fs::path root = datasets_root;
  std::error_code error;
  const fs::path real = fs::weakly_canonical(root / *named.path, error);
  const std::string relative = real.lexically_relative(fs::weakly_canonical(root, error)).string();
  if (relative.empty() || relative == "." || relative.substr(0, 2) == "..") {
    return FieldError{named.field, QuoteValue(*named.path),
                      absl::StrCat("a path beneath the dataset root ", root.string())};
  }
  const bool there =
      named.folder ? fs::is_directory(real, error) : fs::is_regular_file(real, error);
  if (there) return std::nullopt;
  const std::string kind = named.folder ? "folder" : "file";
  return FieldError{
      named.field, QuoteValue(*named.path),
      absl::StrCat("a ", kind, " beneath the dataset root ", root.string(), "; there is no such ",
                   kind, ": copy it there, or set datasets.root")};
}

std::vector<FieldError> MissingPaths(const std::string& datasets_root, JobSpec spec) {
  std::vector<FieldError> missing;
  for (const JobPath& path : PathsOf(spec)) {
    if (auto error = PathError(datasets_root, path)) missing.push_back(*std::move(error));
  }
  return missing;
}

}  // namespace

void JobManager::Train(const TrainRequest& request, const Caller& caller,
                       const Callback<Job>& callback) {
  const auto submit = [this, request, caller, callback] {
    const Submission submission = {request, caller,
                                   MissingPaths(options_.datasets_root, request.spec())};
    writer_.Ask<Job>(
        [this, submission] {
          StartQueued();
          return Accept(submission);
        },
        callback);
  };
  // A file system that hangs holds up those that name files on it, and nobody else's change.
  JobSpec spec = request.spec();
  if (PathsOf(spec).empty()) return submit();
  if (path_checks_.waiting() >= kMaxPathChecks) {
    return callback(absl::UnavailableError(absl::StrCat(
        kMaxPathChecks, " jobs wait for a look at their files beneath ", options_.datasets_root,
        ", which does not answer; see whether that file system hangs, and try again")));
  }
  path_checks_.Post(submit);
}

absl::Status JobManager::CheckSpec(const Submission& submission) const {
  const JobSpec& spec = submission.request.spec();
  const std::vector<FieldError> errors = ValidateJobSpec(spec);
  if (!errors.empty()) return ToStatus(errors);
  if (spec.rehearsals_size() > 0 && !options_.rehearsals_allowed) {
    return ToStatus({{"rehearsals", "",
                      "this daemon makes no faults on purpose; set rehearsals.allowed to true "
                      "(GENESIS_REHEARSALS_ALLOWED) where that is wanted, or remove rehearsals"}});
  }
  if (spec.training().use_ddp()) {
    return ToStatus(
        {{"training.use_ddp", "true",
          "false, for this daemon starts one worker for a job; several ranks are started "
          "by torchrun and run genesis-worker --spec (docs/distributed.md)"}});
  }
  const int64_t most = pool_->largest_device_bytes();
  if (most > 0 && spec.scheduling().memory_bytes() > most) {
    return ToStatus({{"scheduling.memory_bytes", absl::StrCat(spec.scheduling().memory_bytes()),
                      absl::StrCat("at most ", most, ", the memory of the largest device")}});
  }
  return submission.missing.empty() ? absl::OkStatus() : ToStatus(submission.missing);
}

absl::StatusOr<JobManager::Job> JobManager::NewJob(const Submission& submission) const {
  const TrainRequest& request = submission.request;
  absl::Status checked = CheckSpec(submission);
  if (!checked.ok()) return checked;
  Job job;
  job.set_id(request.job_id().empty() ? NewJobId() : request.job_id());
  *job.mutable_spec() = WithDefaults(request.spec(), options_.loss_scale);
  job.set_state(training::v1::JOB_STATE_QUEUED);
  job.set_state_reason("accepted");
  *job.mutable_create_time() = TimestampNow();
  const training::v1::SchedulingSpec& scheduling = job.spec().scheduling();
  job.set_priority(scheduling.priority());
  *job.mutable_labels() = scheduling.labels();
  job.set_owner(scheduling.owner().empty() ? submission.caller.name : scheduling.owner());
  job.set_request_id(request.request_id());
  return job;
}

absl::StatusOr<JobManager::Job> JobManager::Accept(const Submission& submission) {
  const TrainRequest& request = submission.request;
  absl::Status named = CheckNames(request);
  if (!named.ok()) return named;
  if (const Job* existing = FindSame(request)) {
    if (!request.job_id().empty() && existing->id() != request.job_id()) {
      return absl::AlreadyExistsError(absl::StrCat(
          "request_id ", QuoteValue(request.request_id()), " is that of job \"", existing->id(),
          "\", and job_id is \"", request.job_id(), "\"; choose another request_id"));
    }
    const JobSpec spec = WithDefaults(request.spec(), options_.loss_scale);
    if (MessageDifferencer::Equals(spec, existing->spec())) return *existing;
    return absl::AlreadyExistsError(absl::StrCat(
        "job \"", existing->id(), "\" exists with another specification; choose another ",
        existing->id() == request.job_id() ? "id" : "request_id"));
  }
  if (draining_) {
    return absl::UnavailableError("the daemon is draining; try again when it has started anew");
  }
  const std::string& start = request.spec().start_from_checkpoint();
  if (!start.empty() && !table_.FindCheckpoint(start)) {
    return absl::NotFoundError(absl::StrCat("start_from_checkpoint: there is no checkpoint ",
                                            QuoteValue(start),
                                            "; `genesisctl checkpoints` lists them"));
  }
  if (!request.job_id().empty() && !table_.CheckpointsOf(request.job_id()).empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("there are checkpoints of an earlier job \"", request.job_id(),
                     "\"; choose another job_id, or delete them first (`genesisctl checkpoints ",
                     request.job_id(), "` lists them)"));
  }
  absl::StatusOr<Job> job = NewJob(submission);
  if (!job.ok() || request.validate_only()) return job;
  const absl::Status room = CheckQueue();
  if (!room.ok()) return room;
  table_.Insert(*job);
  training::v1::JobEvent accepted;
  accepted.mutable_state_changed()->set_to(job->state());
  accepted.mutable_state_changed()->set_reason(job->state_reason());
  table_.AddEvent(job->id(), std::move(accepted));
  table_.Count([this, id = job->id(), owner = job->owner()] {
    accepted_[id] = SteadyNow();
    spdlog::info("job {} accepted for {}", id, owner);
    metrics_->JobMoved(training::v1::JOB_STATE_UNSPECIFIED, training::v1::JOB_STATE_QUEUED);
  });
  return job;
}

absl::Status JobManager::CheckQueue() const {
  const int queued = table_.CountIn(training::v1::JOB_STATE_QUEUED);
  const int limit = queue_limit_;
  if (queued < limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", queued,
                                                   " jobs wait and queue.max_jobs is ", limit,
                                                   "; try again when one has started"));
}

absl::Status JobManager::CheckNames(const TrainRequest& request) {
  std::vector<FieldError> errors;
  if (!request.job_id().empty()) {
    const std::string fault = JobIdFault(request.job_id());
    if (!fault.empty()) errors.push_back({"job_id", QuoteValue(request.job_id()), fault});
  }
  if (request.request_id().size() > kLongestRequestId) {
    errors.push_back({"request_id", QuoteValue(request.request_id()),
                      absl::StrCat("1 to ", kLongestRequestId, " bytes")});
  }
  return errors.empty() ? absl::OkStatus() : ToStatus(errors);
}

const Job* JobManager::FindSame(const TrainRequest& request) const {
  const Job* named = request.job_id().empty() ? nullptr : table_.Find(request.job_id());
  if (named != nullptr || request.request_id().empty()) return named;
  return table_.FindByRequestId(request.request_id());
}

void JobManager::Delete(const training::v1::DeleteJobRequest& request,
                        const Callback<std::vector<training::v1::Checkpoint>>& callback) {
  writer_.Ask<std::vector<training::v1::Checkpoint>>([this, request] { return DeleteNow(request); },
                                                     callback);
}

absl::StatusOr<std::vector<training::v1::Checkpoint>> JobManager::DeleteNow(
    const training::v1::DeleteJobRequest& request) {
  const Job* job = table_.Find(request.job_id());
  if (job == nullptr) return NoSuchJob(request.job_id());
  if (!IsFinal(job->state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job->id(), "\" is ", JobStateName(job->state()),
                     "; only a job that has ended can be deleted: cancel it first"));
  }
  std::vector<training::v1::Checkpoint> removed;
  if (request.delete_checkpoints()) removed = table_.CheckpointsOf(job->id());
  for (const training::v1::Checkpoint& checkpoint : removed) {
    const std::string needed_by = NeedsCheckpoint(checkpoint);
    if (needed_by.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", needed_by, "\" has not ended and may need checkpoint \"",
                     checkpoint.id(), "\"; delete without the checkpoints, or wait for its end"));
  }
  table_.Remove(request.job_id(), request.delete_checkpoints());
  table_.Count([id = request.job_id()] { spdlog::info("job {} deleted by a user", id); });
  return removed;
}

void JobManager::Pause(const std::string& job_id, const Callback<Job>& callback) {
  writer_.Ask<Job>([this, job_id] { return PauseNow(job_id); }, callback);
}

absl::StatusOr<JobManager::Job> JobManager::PauseNow(const std::string& job_id) {
  const Job* job = table_.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  const JobState state = job->state();
  if (state == training::v1::JOB_STATE_PAUSED || state == training::v1::JOB_STATE_PAUSING) {
    return *job;
  }
  if (IsFinal(state)) return HasEnded(*job, "only a job that has not ended can be paused");
  if (state == training::v1::JOB_STATE_CANCELLING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job_id, "\" is being cancelled; it cannot be paused"));
  }
  if (!IsOnWorker(state)) {
    Move(job_id, training::v1::JOB_STATE_PAUSED, "paused by a user");
    return *table_.Find(job_id);
  }
  Move(job_id, training::v1::JOB_STATE_PAUSING, "paused by a user");
  AskToStop(*job, /*checkpoint=*/true, "a user paused the job");
  return *table_.Find(job_id);
}

void JobManager::Resume(const std::string& job_id, const Callback<Job>& callback) {
  writer_.Ask<Job>([this, job_id] { return ResumeNow(job_id); }, callback);
}

absl::StatusOr<JobManager::Job> JobManager::ResumeNow(const std::string& job_id) {
  const Job* job = table_.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  const JobState state = job->state();
  if (IsFinal(state)) return HasEnded(*job, "only a PAUSED job can be resumed");
  if (state == training::v1::JOB_STATE_CANCELLING || state == training::v1::JOB_STATE_PAUSING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job_id, "\" is ", JobStateName(state),
                     "; resume it when it is PAUSED: genesisctl watch ", job_id));
  }
  if (state == training::v1::JOB_STATE_PAUSED) {
    const absl::Status room = CheckQueue();
    if (!room.ok()) return room;
    Move(job_id, training::v1::JOB_STATE_QUEUED, "resumed by a user");
    StartQueued();
  }
  return *table_.Find(job_id);
}

void JobManager::Cancel(const std::string& job_id, bool now, const Callback<Job>& callback) {
  writer_.Ask<Job>([this, job_id, now] { return CancelNow(job_id, now); }, callback);
}

absl::StatusOr<JobManager::Job> JobManager::CancelNow(const std::string& job_id, bool now) {
  const Job* job = table_.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  const JobState state = job->state();
  if (state == training::v1::JOB_STATE_CANCELLED) return *job;
  if (IsFinal(state)) return HasEnded(*job, "only a job that has not ended can be cancelled");
  if (!IsOnWorker(state)) {
    End(job_id, training::v1::JOB_STATE_CANCELLED, "cancelled by a user");
    return *table_.Find(job_id);
  }
  if (state != training::v1::JOB_STATE_CANCELLING) {
    Move(job_id, training::v1::JOB_STATE_CANCELLING, "cancelled by a user");
    AskToStop(*job, /*checkpoint=*/!now, "a user cancelled the job");
  }
  if (now) {
    table_.Announce([this, job_id] {
      pool_->ExpectExit(job_id, absl::ZeroDuration(), "a user cancelled the job at once");
    });
  }
  return *table_.Find(job_id);
}

void JobManager::Update(const training::v1::UpdateJobRequest& request,
                        const Callback<Job>& callback) {
  writer_.Ask<Job>([this, request] { return UpdateNow(request); }, callback);
}

absl::StatusOr<JobManager::Job> JobManager::UpdateNow(
    const training::v1::UpdateJobRequest& request) {
  const Job* job = table_.Find(request.job_id());
  if (job == nullptr) return NoSuchJob(request.job_id());
  Faults faults;
  bool priority = false;
  bool labels = false;
  for (const std::string& path : request.update_mask().paths()) {
    if (path != "priority" && path != "labels") {
      faults.Add("update_mask", QuoteValue(path), "priority, labels");
    }
    priority = priority || path == "priority";
    labels = labels || path == "labels";
  }
  if (request.update_mask().paths().empty()) {
    faults.Add("update_mask", "", "required; name what to change: priority, labels");
  }
  if (priority) CheckPriority("priority", request.priority(), faults);
  if (labels) CheckLabels("labels", request.labels(), faults);
  const std::vector<FieldError> errors = faults.Take();
  if (!errors.empty()) return ToStatus(errors);
  if (priority && IsFinal(job->state())) {
    return HasEnded(*job, "the priority of a job that has ended decides nothing");
  }
  Job* changed = table_.Edit(request.job_id());
  if (priority) changed->set_priority(request.priority());
  if (labels) *changed->mutable_labels() = request.labels();
  training::v1::JobEvent event;
  event.set_updated(absl::StrCat(
      "updated by a user: ", priority ? absl::StrCat("priority ", request.priority()) : "",
      priority && labels ? ", " : "", labels ? "labels" : ""));
  table_.AddEvent(request.job_id(), std::move(event));
  if (priority) StartQueued();
  return *changed;
}

void JobManager::Checkpoint(const std::string& job_id,
                            const Callback<training::v1::Checkpoint>& callback) {
  writer_.Post({[this, job_id, callback] {
                  const Job* job = table_.Find(job_id);
                  if (job == nullptr) {
                    table_.Announce([callback, job_id] { callback(NoSuchJob(job_id)); });
                    return;
                  }
                  if (job->state() != training::v1::JOB_STATE_RUNNING) {
                    const absl::Status status = absl::FailedPreconditionError(
                        absl::StrCat("job \"", job_id, "\" is ", JobStateName(job->state()),
                                     "; only a RUNNING job can be checkpointed"));
                    table_.Announce([callback, status] { callback(status); });
                    return;
                  }
                  table_.Announce([this, job_id, callback] {
                    checkpoint_waiters_[job_id].push_back(callback);
                    SendTakeCheckpoint(job_id);
                  });
                },
                callback});
}

void JobManager::DrainWorker(const std::string& worker_id,
                             const Callback<training::v1::DrainWorkerResponse>& callback) {
  writer_.Post({[this, worker_id, callback] {
                  const absl::StatusOr<std::string> job_id = pool_->Retire(worker_id);
                  if (job_id.ok() && stops_.count(*job_id) == 0) {
                    const Job* job = table_.Find(*job_id);
                    const bool runs = job != nullptr && job->worker().worker_id() == worker_id &&
                                      IsTraining(job->state());
                    if (runs) {
                      StopFor(*job_id, {StopCause::kRetired,
                                        absl::StrCat("worker ", worker_id, " is drained")});
                    }
                  }
                  table_.Announce([this, worker_id, status = job_id.status(), callback] {
                    if (!status.ok()) return callback(status);
                    training::v1::DrainWorkerResponse response;
                    for (const training::v1::WorkerInfo& worker : pool_->workers()) {
                      if (worker.id() == worker_id) *response.mutable_worker() = worker;
                    }
                    callback(response);
                  });
                },
                callback});
}

}  // namespace genesis
