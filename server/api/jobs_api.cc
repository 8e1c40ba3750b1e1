// Methods for jobs.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/job/final_state.h"
#include "server/api/event_watches.h"
#include "server/api/page.h"
#include "server/api/request_times.h"
#include "server/api/training_api.h"
#include "server/auth/ownership.h"
#include "server/checkpoints/curve_retention.h"

namespace genesis {
namespace {

using training::v1::Job;

// Returns a callback that wraps the job in `Response` and passes it to `callback`.
template <typename Response>
Callback<Job> AnswerWithJob(const Callback<Response>& callback) {
  return [callback](const absl::StatusOr<Job>& job) {
    if (!job.ok()) return callback(job.status());
    Response response;
    *response.mutable_job() = *job;
    callback(response);
  };
}

// Maximum length of a label key or value in a filter, in bytes. No job has longer ones.
constexpr size_t kMaxFilterBytes = 255;

absl::StatusOr<JobQuery> QueryOf(const training::v1::ListJobsRequest& request) {
  const absl::StatusOr<int> size = PageSize(request.page_size());
  if (!size.ok()) return size.status();
  JobQuery query;
  query.limit = *size;
  for (const int state : request.states()) {
    if (state == training::v1::JOB_STATE_UNSPECIFIED) {
      return absl::InvalidArgumentError(absl::StrCat("states has ", state, "; accepted: 1 to ",
                                                     training::v1::JobState_MAX,
                                                     ", the states of a job"));
    }
    query.states.push_back(static_cast<training::v1::JobState>(state));
  }
  for (const auto& [key, value] : request.labels()) {
    if (key.empty() || key.size() > kMaxFilterBytes || value.size() > kMaxFilterBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("labels has a key of ", key.size(), " bytes with a value of ", value.size(),
                       "; accepted: keys of 1 to ", kMaxFilterBytes, " bytes, values of at most ",
                       kMaxFilterBytes));
    }
  }
  query.owner = request.owner();
  query.labels.insert(request.labels().begin(), request.labels().end());
  query.id_prefix = request.id_prefix();
  if (request.order() != training::v1::JOB_ORDER_UNSPECIFIED) query.order = request.order();
  if (request.page_token().empty()) return query;
  const auto keys = ReadPageKeys<2>(request);
  if (!keys.ok()) return keys.status();
  query.after = JobQuery::Place{(*keys)[0], (*keys)[1]};
  return query;
}

// Returns how many jobs fit into one response: one, or up to 2 MiB. gRPC clients accept 4 MiB.
size_t FittingJobs(const std::vector<StoredJob>& jobs, size_t page_size) {
  constexpr size_t kMaxPageBytes = size_t{2} << 20U;
  size_t shown = 0;
  for (size_t bytes = 0; shown < std::min(jobs.size(), page_size); ++shown) {
    bytes += jobs[shown].job.ByteSizeLong();
    if (shown > 0 && bytes > kMaxPageBytes) break;
  }
  return shown;
}

}  // namespace

void TrainingApi::Train(const Caller& caller, const training::v1::TrainRequest& request,
                        const Callback<training::v1::TrainResponse>& callback) {
  parts_.jobs->admission().Train(request, caller, AnswerWithJob(callback));
}

void TrainingApi::GetJob(const Caller& caller, const training::v1::GetJobRequest& request,
                         const Callback<training::v1::GetJobResponse>& callback) {
  const absl::StatusOr<absl::Duration> wait = WaitOf(request.wait_seconds());
  if (!wait.ok()) return callback(wait.status());
  const auto answer = [jobs = parts_.jobs, caller, id = request.job_id(),
                       respond = AnswerWithJob(callback)](bool last) {
    if (!last) {
      const auto now = jobs->view().Snapshot(id);
      if (now.ok() && *now != nullptr && !IsFinal((*now)->job.state())) return false;
    }
    respond(jobs->queries().Get(caller, id));
    return true;
  };
  // The caller does not wait for a job that does not exist.
  const bool exists = parts_.jobs->queries().Get(caller, request.job_id()).ok();
  if (answer(!exists || *wait == absl::ZeroDuration())) return;
  const absl::Status waiting = parts_.watches->Wait(caller, *wait, {answer, callback});
  if (!waiting.ok()) callback(waiting);
}

void TrainingApi::ListJobs(const Caller& caller, const training::v1::ListJobsRequest& request,
                           const Callback<training::v1::ListJobsResponse>& callback) {
  absl::StatusOr<JobQuery> query = QueryOf(request);
  if (!query.ok()) return callback(query.status());
  // Read before the jobs, so that the page reflects all events up to it.
  const int64_t cursor = parts_.jobs->view().LastSequence();
  const int64_t page_size = query->limit++;  // One extra row shows whether there is a next page.
  absl::StatusOr<std::vector<StoredJob>> jobs = parts_.jobs->queries().List(caller, *query);
  if (!jobs.ok()) return callback(jobs.status());
  training::v1::ListJobsResponse response;
  response.set_cursor(cursor);
  const size_t shown = FittingJobs(*jobs, static_cast<size_t>(page_size));
  if (jobs->size() > shown) {
    jobs->resize(shown);
    const StoredJob& last = jobs->back();
    response.set_next_page_token(
        MakePageToken(request, PlaceOf({last.job.priority(), last.ordinal})));
  }
  for (StoredJob& each : *jobs) *response.add_jobs() = std::move(each.job);
  callback(response);
}

void TrainingApi::PauseJob(const Caller& caller, const training::v1::PauseJobRequest& request,
                           const Callback<training::v1::PauseJobResponse>& callback) {
  parts_.jobs->requests().Pause(caller, request.job_id(), AnswerWithJob(callback));
}

void TrainingApi::ResumeJob(const Caller& caller, const training::v1::ResumeJobRequest& request,
                            const Callback<training::v1::ResumeJobResponse>& callback) {
  parts_.jobs->requests().Resume(caller, request.job_id(), AnswerWithJob(callback));
}

void TrainingApi::UpdateJob(const Caller& caller, const training::v1::UpdateJobRequest& request,
                            const Callback<training::v1::UpdateJobResponse>& callback) {
  parts_.jobs->requests().Update(caller, request, AnswerWithJob(callback));
}

void TrainingApi::ReportMetrics(const Caller& caller,
                                const training::v1::ReportMetricsRequest& request,
                                const Callback<training::v1::ReportMetricsResponse>& callback) {
  parts_.jobs->requests().ReportMetrics(caller, request, AnswerWithJob(callback));
}

void TrainingApi::LeaseEvaluation(const Caller& caller,
                                  const training::v1::LeaseEvaluationRequest& request,
                                  const Callback<training::v1::LeaseEvaluationResponse>& callback) {
  const absl::StatusOr<absl::Duration> wait = WaitOf(request.wait_seconds());
  if (!wait.ok()) return callback(wait.status());
  const absl::StatusOr<absl::Duration> length = LeaseOf(request.lease_seconds());
  if (!length.ok()) return callback(length.status());
  const absl::StatusOr<Job> job = parts_.jobs->queries().Get(caller, request.job_id());
  if (!job.ok()) return callback(job.status());
  const absl::Status owns =
      CheckOwner(caller, job->owner(), absl::StrCat("job \"", job->id(), "\""));
  if (!owns.ok()) return callback(owns);
  EvaluationLeases& leases = parts_.jobs->evaluations();
  if (*wait == absl::ZeroDuration()) return callback(leases.Lease(*job, *length));
  const absl::Status waiting =
      parts_.watches->Wait(caller, *wait, {leases.WaitFor(job->id(), *length, callback), callback});
  if (!waiting.ok()) callback(waiting);
}

// Removes the records first, so that no client receives a file about to be removed.
void TrainingApi::DeleteJob(const Caller& caller, const training::v1::DeleteJobRequest& request,
                            const Callback<training::v1::DeleteJobResponse>& callback) {
  using Removed = absl::StatusOr<std::vector<training::v1::Checkpoint>>;
  parts_.jobs->requests().Delete(
      caller, request,
      [files = parts_.files, id = request.job_id(), callback](const Removed& removed) {
        if (!removed.ok()) return callback(removed.status());
        files->Post([files, id, checkpoints = *removed, callback] {
          training::v1::DeleteJobResponse response;
          RemoveCurves(files->options().dir, id);
          for (const training::v1::Checkpoint& checkpoint : checkpoints) {
            const absl::Status gone = files->Remove(checkpoint);
            if (!gone.ok()) return callback(gone);
            response.set_deleted_checkpoints(response.deleted_checkpoints() + 1);
          }
          callback(response);
        });
      });
}

void TrainingApi::CancelJob(const Caller& caller, const training::v1::CancelJobRequest& request,
                            const Callback<training::v1::CancelJobResponse>& callback) {
  parts_.jobs->requests().Cancel(caller, request.job_id(), {.now = request.now()},
                                 AnswerWithJob(callback));
}

}  // namespace genesis
