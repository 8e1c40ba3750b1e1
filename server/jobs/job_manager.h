#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/auth/caller.h"
#include "server/base/callback.h"
#include "server/base/io_threads.h"
#include "server/jobs/counters.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/failure_watch.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/job_table.h"
#include "server/jobs/scheduler.h"
#include "server/jobs/stop_request.h"
#include "server/jobs/submission.h"
#include "server/jobs/training_stats.h"
#include "server/jobs/unprotected_work.h"
#include "server/jobs/writer.h"
#include "server/workers/worker_events.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// The life of jobs: the only class that changes one.
// Purpose: turns what users wish and what workers report into legal moves of job_state.h, each
// durable before anybody hears of it, and gives queued jobs to warm workers in the order of
// scheduler.h. Owner: the daemon. Every public method may be called by any thread and returns at
// once; changes run on the writer thread in the order they came. An Answer is called on the writer
// thread.
// Failure: a wish is refused with the store's status when it cannot be made durable; a worker's
// report is kept and tried again.
class JobManager final : public WorkerEvents {
 public:
  using Options = JobManagerOptions;

  JobManager(Options options, JobStore* store, WorkerPool* pool, Metrics* metrics);
  ~JobManager() override;

  // Loads the store. A job whose worker lives on keeps it; any other that was on a worker goes back
  // into the queue. Before Start, and before the pool's.
  absl::Status Recover();
  void Start();
  // No new jobs and no new leases; asks every running job for a checkpoint and its end. They are
  // queued again in the store, for the next start.
  void Drain();
  // Ends the writer thread after what waits. Idempotent.
  void Stop();

  // Wishes of users (job_requests.cc).
  void Train(const training::v1::TrainRequest& request, const Caller& caller,
             const Callback<training::v1::Job>& callback);
  void Pause(const std::string& job_id, const Callback<training::v1::Job>& callback);
  void Resume(const std::string& job_id, const Callback<training::v1::Job>& callback);
  void Cancel(const std::string& job_id, bool now, const Callback<training::v1::Job>& callback);
  void Update(const training::v1::UpdateJobRequest& request,
              const Callback<training::v1::Job>& callback);
  // Answers when the checkpoint is durable.
  void Checkpoint(const std::string& job_id, const Callback<training::v1::Checkpoint>& callback);
  // Forgets a job that has ended; answers with the checkpoints whose records went with it, whose
  // files the caller removes.
  void Delete(const training::v1::DeleteJobRequest& request,
              const Callback<std::vector<training::v1::Checkpoint>>& callback);
  // Durable before it acts (policy_changes.cc).
  void SetPolicy(const training::v1::SetPrecisionPolicyRequest& request, const Caller& caller,
                 const Callback<training::v1::SetPrecisionPolicyResponse>& callback);
  // Ends a worker; the job it holds is checkpointed and queued again.
  void DrainWorker(const std::string& worker_id,
                   const Callback<training::v1::DrainWorkerResponse>& callback);

  // A checkpoint that a user named or brought (job_checkpoints.cc).
  void RecordCheckpoint(const training::v1::Checkpoint& checkpoint,
                        const Callback<training::v1::Checkpoint>& callback);
  // Removes the record and answers with it; the caller removes the file. NOT_FOUND;
  // FAILED_PRECONDITION when a job that has not ended may need it.
  void ForgetCheckpoint(const std::string& id, const Callback<training::v1::Checkpoint>& callback);
  // A job that has not ended and reads the dataset; "" for none.
  void JobThatNeedsDataset(const std::string& name, const Callback<std::string>& callback);

  // What readers see (job_reads.cc).
  absl::StatusOr<training::v1::Checkpoint> GetCheckpoint(const std::string& id) const;
  absl::StatusOr<training::v1::Job> Get(const std::string& job_id) const;
  // Places in the queue filled in.
  absl::StatusOr<std::vector<StoredJob>> List(const JobQuery& query) const;
  // Events, checkpoints, and jobs without their places in the queue.
  const JobView& view() const { return table_.view(); }
  training::v1::StatsResponse Stats() const;
  // Of each job that is on a worker, how it does now.
  std::vector<training::v1::HistoryRow> HistoryRows() const;
  // With its window, or of one job. NOT_FOUND; INVALID_ARGUMENT for a bad window.
  absl::StatusOr<training::v1::StatsResponse> Stats(
      const training::v1::StatsRequest& request) const;
  // Whether reduced precision may run, and what an operator decided of that at run time.
  PrecisionGate gate() const;
  training::v1::PrecisionPolicy policy() const;
  // From now on: how many jobs may be QUEUED, what happens when too many of them fail.
  void SetQueueLimit(int jobs) { queue_limit_ = jobs; }
  void SetFailureWatch(FailureWatchAction action) {
    writer_.Post({[this, action] { failure_watch_.SetAction(action); }, [](auto&) {}});
  }
  // Called back by the writer thread, which lives then.
  void AskWriter(std::function<void()> alive) {
    writer_.Post({std::move(alive), [](auto&) {}});
  }
  // Why the store refuses changes; OK when it takes them.
  absl::Status store_status() const { return writer_.store_status(); }
  // The watcher is told of the job as it is, then of each change. NOT_FOUND without such a job.
  absl::Status Watch(const std::string& job_id, const std::shared_ptr<JobWatcher>& watcher);
  void Unwatch(const std::string& job_id, const JobWatcher* watcher);

  void OnCapacity() override;
  void OnWorkerEvent(const training::v1::AttachRequest& event) override;
  void OnWorkerBack(const std::string& job_id, int64_t claim) override;
  void OnWorkerHung(const std::string& job_id, int64_t claim, const std::string& what) override;
  void OnWorkerGone(const WorkerExit& exit) override;

 private:
  using Job = training::v1::Job;
  struct QueuePlace {
    int position = 0;
    std::optional<absl::Time> start;
  };

  // Any thread.
  std::map<std::string, QueuePlace> ReadQueue() const;
  std::optional<absl::Duration> ExpectedDuration() const;
  absl::StatusOr<training::v1::StatsResponse> StatsOf(const std::string& job_id,
                                                      absl::Duration length) const;
  static void PutPlace(const std::map<std::string, QueuePlace>& places, Job& job);

  // Everything below runs on the writer thread.

  void RecoverRunning(const Job& job);
  absl::StatusOr<Job> Accept(const Submission& submission);
  absl::StatusOr<Job> NewJob(const Submission& submission) const;
  absl::Status CheckQueue() const;
  absl::StatusOr<Job> PauseNow(const std::string& job_id);
  absl::StatusOr<Job> ResumeNow(const std::string& job_id);
  absl::StatusOr<Job> CancelNow(const std::string& job_id, bool now);
  absl::StatusOr<std::vector<training::v1::Checkpoint>> DeleteNow(
      const training::v1::DeleteJobRequest& request);
  absl::StatusOr<Job> UpdateNow(const training::v1::UpdateJobRequest& request);
  static absl::Status CheckNames(const training::v1::TrainRequest& request);
  // The job that the request names already, by job id or by request id.
  const Job* FindSame(const training::v1::TrainRequest& request) const;
  absl::Status CheckSpec(const Submission& submission) const;
  absl::StatusOr<training::v1::Checkpoint> ForgetNow(const std::string& id);
  // The job that has not ended and may need the checkpoint; "" for none.
  std::string NeedsCheckpoint(const training::v1::Checkpoint& checkpoint) const;

  // Who gets a slot next (assignment.cc).
  void StartQueued();
  // The worker it leased for the next job; empty when there is no job or no worker for one.
  std::string AssignNext();
  void Assign(const std::string& job_id, const WorkerPool::Lease& lease);
  void PreemptFor(const Job& waiting);
  // Looks at what depends on time: deadlines, restarts that waited.
  void OnTime();
  bool MayStart(const Job& job, absl::Time now) const;
  // Of a job that the store had, when it was accepted and when it may be tried again.
  void NoteTimes(const Job& job);
  absl::Time AcceptedAt(const Job& job) const;
  absl::Time DeadlineOf(const Job& job) const;
  std::vector<std::string> QueueInOrder() const;
  std::vector<HoldingJob> HoldingJobs() const;
  int64_t MemoryOf(const training::v1::JobSpec& spec) const;
  // Asks the job's worker for its end, for a reason that decides what becomes of the job.
  void StopFor(const std::string& job_id, const StopRequest& request);
  void AskToStop(const Job& job, bool checkpoint, const std::string& why);

  // What workers report (worker_reports.cc, precision_reports.cc).
  bool IsCurrent(const std::string& job_id, int64_t claim) const;
  void Report(const training::v1::AttachRequest& event);
  void Dispatch(const training::v1::AttachRequest& event);
  void OnStarted(const Job& job, const training::v1::Started& started);
  void OnSteps(const Job& job, const training::v1::Steps& steps);
  void OnCheckpoint(const Job& job, const training::v1::CheckpointWritten& written);
  void OnPrecisionChanged(const Job& job, const training::v1::PrecisionChange& change);
  void OnIncident(const Job& job, const training::v1::Incident& incident);
  void OnEvaluated(const Job& job, const training::v1::Evaluation& evaluation);
  void OnBack(const Job& job);
  void LeaveReducedPrecision(const std::string& job_id);
  void SendTakeCheckpoint(const std::string& job_id);
  void NoteHistory(const Job& job);
  void WatchFailures(const Job& ended);

  // Whether reduced precision may run (policy_changes.cc).
  void LoadPolicy();
  void PublishPolicy(const training::v1::PrecisionPolicy& policy);
  void ApplyPolicy(const training::v1::SetPrecisionPolicyRequest& request,
                   const training::v1::PrecisionPolicy& policy,
                   const Callback<training::v1::SetPrecisionPolicyResponse>& callback);

  // How attempts end, and what comes after (job_endings.cc).
  void OnFinished(const Job& job, const training::v1::Finished& finished);
  void OnFailed(const Job& job, const training::v1::Failure& failure);
  void OnStopped(const Job& job);
  void EndStopped(const std::string& job_id, const StopRequest& request, const std::string& at);
  void OnLost(const WorkerExit& exit);
  void NotePeak(Job& job, int64_t host_bytes, int64_t device_bytes);
  // Queues the job again while its budget lasts, else fails it.
  void RestartOrFail(const std::string& job_id, training::v1::Failure failure);
  void Requeue(const std::string& job_id, const std::string& reason);
  void Fail(const std::string& job_id, training::v1::Failure failure);
  void End(const std::string& job_id, training::v1::JobState state, const std::string& reason);
  // The job is off its worker: what it used is counted, what was asked of it is forgotten.
  void LeaveWorker(const std::string& job_id);
  void Move(const std::string& job_id, training::v1::JobState to, const std::string& reason);
  void AnswerCheckpointWaiters(const std::string& job_id,
                               const absl::StatusOr<training::v1::Checkpoint>& result);

  const Options options_;
  WorkerPool* const pool_;
  Metrics* const metrics_;
  EventHub hub_;
  JobTable table_;
  Writer writer_;
  Counters counters_;
  TrainingStats stats_;
  std::atomic<bool> draining_{false};
  std::atomic<int> queue_limit_;
  mutable absl::Mutex policy_mutex_;
  training::v1::PrecisionPolicy policy_ ABSL_GUARDED_BY(policy_mutex_);
  PrecisionGate gate_ ABSL_GUARDED_BY(policy_mutex_);
  // Writer thread only.
  FailureWatch failure_watch_;
  OwnerUsage usage_;
  UnprotectedWork unprotected_;
  std::map<std::string, StopRequest> stops_;  // By job, while it is still on its worker.
  // Of SteadyNow(), by job that has not ended.
  std::map<std::string, absl::Time> accepted_;
  std::map<std::string, absl::Time> retries_;         // Before it no attempt begins.
  std::map<std::string, absl::Time> attempt_starts_;  // Of those on a worker.
  std::map<std::string, int> fruitless_restarts_;     // By job, since its newest checkpoint.
  std::map<std::string, int64_t> peak_memory_;        // By workload.
  std::map<std::string, std::vector<Callback<training::v1::Checkpoint>>> checkpoint_waiters_;
  IoThreads path_checks_{2};  // Last: what it runs asks the writer.
};

}  // namespace genesis
