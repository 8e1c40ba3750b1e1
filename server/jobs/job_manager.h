#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "config/gate.h"
#include "config/job_spec.h"
#include "config/precision.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/jobs/counters.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/failure_watch.h"
#include "server/jobs/job_table.h"
#include "server/jobs/writer.h"
#include "server/workers/worker_events.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// The life of jobs: the only class that changes one.
// Purpose: turns what users wish and what workers report into legal moves of job_state.h, each
// durable before anybody hears of it, and gives queued jobs to warm workers, oldest first.
// Owner: the daemon. Every public method may be called by any thread and returns at once; changes
// run on the writer thread in the order they came. An Answer is called exactly once, on the writer
// thread, and must not block.
// Failure: a wish is refused with the store's status when it cannot be made durable; a worker's
// report is kept and tried again.
class JobManager final : public WorkerEvents {
 public:
  struct Options {
    std::string datasets_root;
    std::string checkpoints_dir;
    int queue_max_jobs = 1000;
    PrecisionGate gate;
    CpuFallback cpu_fallback = CpuFallback::kBf16;
    FailureWatchAction failure_watch = FailureWatchAction::kEnforce;
    bool rehearsals_allowed = false;
    LossScaleSettings loss_scale;
  };
  template <typename T>
  using Answer = std::function<void(const absl::StatusOr<T>&)>;

  JobManager(Options options, JobStore* store, WorkerPool* pool, Metrics* metrics);
  ~JobManager() override;

  // Loads the store and brings every job that was on a worker back into the queue. Before Start.
  absl::Status Recover();
  void Start();
  // No new jobs and no new leases; asks every running job for a checkpoint and its end. They are
  // queued again in the store, for the next start.
  void Drain();
  // Ends the writer thread after what waits. Idempotent.
  void Stop();

  void Train(const training::v1::TrainRequest& request, const Answer<training::v1::Job>& answer);
  void Cancel(const std::string& job_id, const Answer<training::v1::Job>& answer);
  // Answers when the checkpoint is durable.
  void Checkpoint(const std::string& job_id, const Answer<training::v1::Checkpoint>& answer);

  absl::StatusOr<training::v1::Job> Get(const std::string& job_id) const;
  // In order of acceptance, queue positions filled in.
  std::vector<training::v1::Job> List() const;
  std::vector<training::v1::Checkpoint> ListCheckpoints() const;  // Oldest first.
  training::v1::StatsResponse Stats() const;
  // Why the store refuses changes; OK when it takes them.
  absl::Status store_status() const { return writer_.store_status(); }
  // The watcher is told of the job as it is, then of each change. NOT_FOUND without such a job.
  absl::Status Watch(const std::string& job_id, const std::shared_ptr<JobWatcher>& watcher);
  void Unwatch(const std::string& job_id, const JobWatcher* watcher);

  void OnCapacity() override;
  void OnWorkerEvent(const training::v1::AttachRequest& event) override;
  void OnWorkerGone(const WorkerExit& exit) override;

 private:
  using Job = training::v1::Job;

  // Writer thread, user side (job_manager.cc).
  absl::StatusOr<Job> Accept(const training::v1::TrainRequest& request);
  absl::StatusOr<Job> NewJob(const training::v1::TrainRequest& request) const;
  absl::StatusOr<Job> CancelNow(const std::string& job_id);
  absl::Status CheckSpec(const training::v1::JobSpec& spec) const;

  // Writer thread, worker side (worker_reports.cc).
  bool IsCurrent(const std::string& job_id, int64_t claim) const;
  void StartQueued();
  // The worker it leased for the oldest queued job; empty when there is no job or no worker.
  std::string AssignNext();
  void Report(const training::v1::AttachRequest& event);
  void OnStarted(const Job& job, const training::v1::Started& started);
  void OnSteps(const Job& job, const training::v1::Steps& steps);
  void OnCheckpoint(const Job& job, const training::v1::CheckpointWritten& written);
  void OnPrecisionChanged(const Job& job, const training::v1::PrecisionChange& change);
  void OnIncident(const Job& job, const training::v1::Incident& incident);
  void OnEvaluated(const Job& job, const training::v1::Evaluation& evaluation);
  // The gate, unless jobs in reduced precision fail too often.
  PrecisionGate Gate() const;
  void WatchFailures(const Job& ended);
  void OnFinished(const Job& job, const training::v1::Finished& finished);
  void OnStopped(const Job& job);
  void OnLost(const WorkerExit& exit);
  void Requeue(const std::string& job_id, const std::string& reason);
  void End(const std::string& job_id, training::v1::JobState state, const std::string& reason);
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
  std::atomic<bool> draining_{false};
  // Writer thread only.
  FailureWatch failure_watch_;
  std::map<std::string, std::vector<Answer<training::v1::Checkpoint>>> checkpoint_waiters_;
};

}  // namespace genesis
