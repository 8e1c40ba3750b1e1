#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/base/callback.h"
#include "server/jobs/admission.h"
#include "server/jobs/job_attempts.h"
#include "server/jobs/job_context.h"

namespace genesis {

// User requests for existing jobs: pause, resume, cancel, update,
// delete. Also drains workers.
//
// Owner: JobManager. Threads: any; a callback runs on the writer thread when the change is durable.
class JobRequests {
 public:
  JobRequests(const JobContext& context, JobAttempts* attempts, Admission* admission)
      : context_(context), attempts_(*attempts), admission_(*admission) {}

  void Pause(const std::string& job_id, const Callback<training::v1::Job>& callback);
  void Resume(const std::string& job_id, const Callback<training::v1::Job>& callback);
  void Cancel(const std::string& job_id, bool now, const Callback<training::v1::Job>& callback);
  void Update(const training::v1::UpdateJobRequest& request,
              const Callback<training::v1::Job>& callback);
  // Deletes a finished job. Passes the checkpoints whose records were removed with it to the
  // callback; the caller removes their files.
  void Delete(const training::v1::DeleteJobRequest& request,
              const Callback<std::vector<training::v1::Checkpoint>>& callback);
  // Drains a worker: its job is checkpointed and queued again, then the worker ends.
  void DrainWorker(const std::string& worker_id,
                   const Callback<training::v1::DrainWorkerResponse>& callback);
  // Passes the ID of an unfinished job that reads the dataset to the callback; "" for none.
  void JobThatNeedsDataset(const std::string& name, const Callback<std::string>& callback);

 private:
  absl::StatusOr<training::v1::Job> PauseNow(const std::string& job_id);
  absl::StatusOr<training::v1::Job> ResumeNow(const std::string& job_id);
  absl::StatusOr<training::v1::Job> CancelNow(const std::string& job_id, bool now);
  absl::StatusOr<training::v1::Job> UpdateNow(const training::v1::UpdateJobRequest& request);
  absl::StatusOr<std::vector<training::v1::Checkpoint>> DeleteNow(
      const training::v1::DeleteJobRequest& request);

  const JobContext& context_;
  JobAttempts& attempts_;
  Admission& admission_;
};

}  // namespace genesis
