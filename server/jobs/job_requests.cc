#include "server/jobs/job_requests.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/job/field_rules.h"
#include "config/job/job_paths.h"
#include "config/job/job_sections.h"
#include "server/auth/ownership.h"
#include "server/base/job_log.h"
#include "server/jobs/gang.h"
#include "server/jobs/job_errors.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using training::v1::Job;

absl::Status HasEnded(const Job& job, const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.id(), "\" has ended as ", ShortEnumName(job.state()), "; ", what));
}

// Returns true if the job reads the dataset or a file inside it.
bool Names(const training::v1::JobSpec& spec, const std::string& dataset) {
  for (const JobPath& path : PathsOf(spec)) {
    const std::string named = std::filesystem::path(path.path).lexically_normal().string();
    if (named == dataset || absl::StartsWith(named, dataset + "/")) return true;
  }
  return false;
}

}  // namespace

template <typename Result, typename Change>
void JobRequests::Ask(const Caller& caller, const std::string& job_id, Change change,
                      const Callback<Result>& callback) {
  context_.writer.Ask<Result>(
      [this, caller, job_id, change]() -> absl::StatusOr<Result> {
        const Job* job = context_.table.Find(job_id);
        if (job == nullptr) return NoSuchJob(job_id);
        const absl::Status allowed =
            CheckOwner(caller, job->owner(), absl::StrCat("job \"", job_id, "\""));
        if (!allowed.ok()) return allowed;
        return change(*job);
      },
      callback);
}

void JobRequests::Pause(const Caller& caller, const std::string& job_id,
                        const Callback<Job>& callback) {
  Ask<Job>(
      caller, job_id, [this](const Job& job) { return PauseNow(job); }, callback);
}

absl::StatusOr<Job> JobRequests::PauseNow(const Job& job) {
  const std::string job_id = job.id();
  const JobState state = job.state();
  if (state == training::v1::JOB_STATE_PAUSED || state == training::v1::JOB_STATE_PAUSING) {
    return job;
  }
  if (IsFinal(state)) return HasEnded(job, "only a job that has not ended can be paused");
  if (state == training::v1::JOB_STATE_CANCELLING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job_id, "\" is being cancelled; it cannot be paused"));
  }
  if (!IsOnWorker(state)) {
    context_.ledger.Move(job_id, training::v1::JOB_STATE_PAUSED, "paused by a user");
    return *context_.table.Find(job_id);
  }
  context_.ledger.Move(job_id, training::v1::JOB_STATE_PAUSING, "paused by a user");
  context_.stops.Ask(job, /*checkpoint=*/true, "a user paused the job");
  return *context_.table.Find(job_id);
}

void JobRequests::Resume(const Caller& caller, const std::string& job_id,
                         const Callback<Job>& callback) {
  Ask<Job>(
      caller, job_id, [this](const Job& job) { return ResumeNow(job); }, callback);
}

absl::StatusOr<Job> JobRequests::ResumeNow(const Job& job) {
  const std::string job_id = job.id();
  const JobState state = job.state();
  if (IsFinal(state)) return HasEnded(job, "only a PAUSED job can be resumed");
  if (state == training::v1::JOB_STATE_CANCELLING || state == training::v1::JOB_STATE_PAUSING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job_id, "\" is ", ShortEnumName(state),
                     "; resume it when it is PAUSED: genesisctl watch ", job_id));
  }
  if (state == training::v1::JOB_STATE_PAUSED) {
    const absl::Status room = admission_.CheckQueue(job.owner());
    if (!room.ok()) return room;
    context_.ledger.Move(job_id, training::v1::JOB_STATE_QUEUED, "resumed by a user");
    context_.dispatcher.StartQueued();
  }
  return *context_.table.Find(job_id);
}

void JobRequests::Cancel(const Caller& caller, const std::string& job_id, const Cancellation& how,
                         const Callback<Job>& callback) {
  Ask<Job>(
      caller, job_id, [this, how](const Job& job) { return CancelNow(job, how); }, callback);
}

absl::StatusOr<Job> JobRequests::CancelNow(const Job& job, const Cancellation& how) {
  const std::string job_id = job.id();
  const JobState state = job.state();
  if (state == training::v1::JOB_STATE_CANCELLED) return job;
  if (IsFinal(state)) return HasEnded(job, "only a job that has not ended can be cancelled");
  if (!IsOnWorker(state)) {
    attempts_.End(job_id, training::v1::JOB_STATE_CANCELLED, absl::StrCat("cancelled by ", how.by));
    return *context_.table.Find(job_id);
  }
  if (state != training::v1::JOB_STATE_CANCELLING) {
    context_.ledger.Move(job_id, training::v1::JOB_STATE_CANCELLING,
                         absl::StrCat("cancelled by ", how.by));
    context_.stops.Ask(job, /*checkpoint=*/!how.now, absl::StrCat(how.by, " cancelled the job"));
  }
  if (how.now) {
    context_.table.Announce([this, job_id] {
      context_.workers->ExpectExit(job_id, absl::ZeroDuration(),
                                   "a user cancelled the job at once");
    });
  }
  return *context_.table.Find(job_id);
}

void JobRequests::Update(const Caller& caller, const training::v1::UpdateJobRequest& request,
                         const Callback<Job>& callback) {
  Ask<Job>(
      caller, request.job_id(), [this, request](const Job& job) { return UpdateNow(job, request); },
      callback);
}

absl::StatusOr<Job> JobRequests::UpdateNow(const Job& job,
                                           const training::v1::UpdateJobRequest& request) {
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
  if (priority) {
    training::v1::SchedulingSpec asked;
    asked.set_priority(request.priority());
    CheckRanges("", asked, faults);
  }
  if (labels) CheckLabels("labels", request.labels(), faults);
  const std::vector<FieldError> errors = faults.Take();
  if (!errors.empty()) return ToStatus(errors);
  if (priority && IsFinal(job.state())) {
    return HasEnded(job, "the priority of a job that has ended decides nothing");
  }
  Job* changed = context_.table.Edit(request.job_id());
  if (priority) changed->set_priority(request.priority());
  if (labels) *changed->mutable_labels() = request.labels();
  training::v1::JobEvent event;
  event.set_updated(absl::StrCat(
      "updated by a user: ", priority ? absl::StrCat("priority ", request.priority()) : "",
      priority && labels ? ", " : "", labels ? "labels" : ""));
  context_.table.AddEvent(request.job_id(), std::move(event));
  if (priority) context_.dispatcher.StartQueued();
  return *changed;
}

void JobRequests::ReportMetrics(const Caller& caller,
                                const training::v1::ReportMetricsRequest& request,
                                const Callback<Job>& callback) {
  Ask<Job>(
      caller, request.job_id(),
      [this, caller, request](const Job& job) {
        return metric_reports_.Record(job, caller, request);
      },
      callback);
}

void JobRequests::Delete(const Caller& caller, const training::v1::DeleteJobRequest& request,
                         const Callback<std::vector<training::v1::Checkpoint>>& callback) {
  Ask<std::vector<training::v1::Checkpoint>>(
      caller, request.job_id(), [this, request](const Job& job) { return DeleteNow(job, request); },
      callback);
}

absl::StatusOr<std::vector<training::v1::Checkpoint>> JobRequests::DeleteNow(
    const Job& job, const training::v1::DeleteJobRequest& request) {
  if (!IsFinal(job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.id(), "\" is ", ShortEnumName(job.state()),
                     "; only a job that has ended can be deleted: cancel it first"));
  }
  std::vector<training::v1::Checkpoint> removed;
  if (request.delete_checkpoints()) removed = context_.table.CheckpointsOf(job.id());
  for (const training::v1::Checkpoint& checkpoint : removed) {
    const std::string needed_by = context_.checkpoints.NeededBy(checkpoint);
    if (needed_by.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", needed_by, "\" has not ended and may need checkpoint \"",
                     checkpoint.id(), "\"; delete without the checkpoints, or wait for its end"));
  }
  const JobLog log(job);
  context_.table.Remove(request.job_id(), request.delete_checkpoints());
  context_.table.Count([&stats = context_.stats, log] {
    stats.Forget(log.job_id());
    log.Info("deleted by a user");
  });
  return removed;
}

void JobRequests::DrainWorker(const std::string& worker_id,
                              const Callback<training::v1::DrainWorkerResponse>& callback) {
  context_.writer.Post(
      {[this, worker_id, callback] {
         const absl::StatusOr<std::string> job_id = context_.workers->Retire(worker_id);
         if (job_id.ok() && context_.stops.Find(*job_id) == nullptr) {
           const Job* job = context_.table.Find(*job_id);
           const bool runs =
               job != nullptr && IsHeldBy(*job, worker_id) && IsTraining(job->state());
           if (runs) {
             context_.stops.Stop(
                 *job_id, {StopCause::kRetired, absl::StrCat("worker ", worker_id, " is drained")});
           }
         }
         context_.table.Announce([this, worker_id, status = job_id.status(), callback] {
           if (!status.ok()) return callback(status);
           training::v1::DrainWorkerResponse response;
           for (const training::v1::WorkerInfo& worker : context_.workers->workers()) {
             if (worker.id() == worker_id) *response.mutable_worker() = worker;
           }
           callback(response);
         });
       },
       callback});
}

void JobRequests::JobThatNeedsDataset(const Caller& caller, const std::string& name,
                                      const Callback<std::string>& callback) {
  context_.writer.Ask<std::string>(
      [this, caller, name] {
        const Visibility visibility(context_.options.own_jobs_only);
        std::string needed_by;
        for (const std::string& id : context_.table.Ids()) {
          const Job& job = *context_.table.Find(id);
          if (!Names(job.spec(), name)) continue;
          needed_by = visibility.Sees(caller, job.owner()) ? absl::StrCat("job \"", id, "\"")
                                                           : "a job of another owner";
        }
        return needed_by;
      },
      callback);
}

}  // namespace genesis
