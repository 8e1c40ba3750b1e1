#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/jobs/gang_endings.h"
#include "server/jobs/job_context.h"
#include "server/jobs/job_stops.h"
#include "server/jobs/unprotected_work.h"
#include "server/workers/worker_events.h"

namespace genesis {

// The ends of job attempts and their consequences: the job ends, pauses, or
// waits for another attempt.
//
// Owner: JobManager. Threads: the writer's only.
class JobAttempts {
 public:
  explicit JobAttempts(const JobContext& context)
      : context_(context), unprotected_(context.metrics) {}

  // Called for each unfinished job after a restart of the daemon. A job whose worker is alive keeps
  // it; any other job that was on a worker returns to the queue.
  void Recover(const training::v1::Job& job);

  // Returns true if the claim is that of the job's current attempt.
  bool IsCurrent(const std::string& job_id, int64_t claim) const;
  void OnStarted(const std::string& job_id) { unprotected_.Begin(job_id, context_.clock.Now()); }
  // Called when a checkpoint is durable that contains the work done until `snapshot`.
  void OnCheckpoint(const std::string& job_id, absl::Time snapshot);
  void OnFinished(const training::v1::Job& job, int rank, const training::v1::Finished& finished);
  void OnLost(const WorkerExit& exit);
  // Called when the cluster has ended the workers of a queued job. Counts as one restart.
  void LoseSubmission(const std::string& job_id, const std::string& why);
  // Stops or fails the jobs whose deadline has passed; called a few times a second.
  void EndOverdue();

  void End(const std::string& job_id, training::v1::JobState state, const std::string& reason);

 private:
  // Ends the attempt after the final report of rank 0 or of the only worker.
  void EndAttempt(const training::v1::Job& job, const training::v1::Finished& finished);
  // Ends the attempt because a worker is gone.
  void LoseAttempt(const training::v1::Job& job, const WorkerExit& exit);
  // Same, with the failure to record unless the job's state decides what comes next.
  void LoseAttempt(const training::v1::Job& job, training::v1::Failure failure, bool never_back);
  // Handles a rank that failed or is gone: stops the other ranks; the last one ends the attempt.
  void EndRank(const std::string& job_id, const RankEnd& end);
  void EndGang(const std::string& job_id);
  // Adopts the live workers of a gang, and ends the attempt if one is missing; false if none lives.
  bool AdoptGang(const training::v1::Job& job);
  void OnFailed(const training::v1::Job& job, const training::v1::Failure& failure);
  void OnStopped(const training::v1::Job& job);
  void EndStopped(const std::string& job_id, const StopRequest& request, const std::string& at);
  // Queues the job again while its restart budget lasts, otherwise fails it. The
  // job may be queued already.
  void RestartOrFail(const std::string& job_id, training::v1::Failure failure);
  void Requeue(const std::string& job_id, const std::string& reason);
  void Fail(const std::string& job_id, training::v1::Failure failure);
  // Charges the usage of a job that has left its worker and drops its pending requests.
  void LeaveWorker(const std::string& job_id);

  const JobContext& context_;
  UnprotectedWork unprotected_;
  GangEndings gang_endings_;
  std::map<std::string, int> fruitless_restarts_;  // Restarts per job since its newest checkpoint.
};

}  // namespace genesis
