#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/base/callback.h"
#include "server/jobs/admission.h"
#include "server/jobs/job_attempts.h"
#include "server/jobs/job_context.h"
#include "server/jobs/metric_reports.h"

namespace genesis {

// A way to cancel a job.
struct Cancellation {
  bool now = false;           // Without a checkpoint.
  std::string by = "a user";  // For reasons: "cancelled by a user".
};

// User requests for existing jobs: pause, resume, cancel, update, report metrics, delete. Also
// drains workers.
//
// Owner: JobManager. Threads: any; a callback runs on the writer thread when the change is durable.
class JobRequests {
 public:
  JobRequests(const JobContext& context, JobAttempts* attempts, Admission* admission,
              MetricReports* metric_reports)
      : context_(context),
        attempts_(*attempts),
        admission_(*admission),
        metric_reports_(*metric_reports) {}

  // Each passes PERMISSION_DENIED to the callback unless the caller owns the job or is an admin.
  void Pause(const Caller& caller, const std::string& job_id,
             const Callback<training::v1::Job>& callback);
  void Resume(const Caller& caller, const std::string& job_id,
              const Callback<training::v1::Job>& callback);
  void Cancel(const Caller& caller, const std::string& job_id, const Cancellation& how,
              const Callback<training::v1::Job>& callback);
  void Update(const Caller& caller, const training::v1::UpdateJobRequest& request,
              const Callback<training::v1::Job>& callback);
  void ReportMetrics(const Caller& caller, const training::v1::ReportMetricsRequest& request,
                     const Callback<training::v1::Job>& callback);
  // Deletes a finished job. Passes the checkpoints whose records were removed with it to the
  // callback; the caller removes their files.
  void Delete(const Caller& caller, const training::v1::DeleteJobRequest& request,
              const Callback<std::vector<training::v1::Checkpoint>>& callback);
  // Drains a worker: its job is checkpointed and queued again, then the worker ends.
  void DrainWorker(const std::string& worker_id,
                   const Callback<training::v1::DrainWorkerResponse>& callback);
  // Passes an unfinished job that reads the dataset to the callback: `job "ID"` if the caller may
  // see it, otherwise "a job of another owner"; "" for none.
  void JobThatNeedsDataset(const Caller& caller, const std::string& name,
                           const Callback<std::string>& callback);

 private:
  absl::StatusOr<training::v1::Job> PauseNow(const training::v1::Job& job);
  absl::StatusOr<training::v1::Job> ResumeNow(const training::v1::Job& job);
  absl::StatusOr<training::v1::Job> CancelNow(const training::v1::Job& job,
                                              const Cancellation& how);
  absl::StatusOr<training::v1::Job> UpdateNow(const training::v1::Job& job,
                                              const training::v1::UpdateJobRequest& request);
  absl::StatusOr<std::vector<training::v1::Checkpoint>> DeleteNow(
      const training::v1::Job& job, const training::v1::DeleteJobRequest& request);
  // Runs `change` with the job on the writer thread, if the caller may change the job.
  template <typename Result, typename Change>
  void Ask(const Caller& caller, const std::string& job_id, Change change,
           const Callback<Result>& callback);

  const JobContext& context_;
  JobAttempts& attempts_;
  Admission& admission_;
  MetricReports& metric_reports_;
};

}  // namespace genesis
