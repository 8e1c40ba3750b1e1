#pragma once

#include <functional>

#include "server/jobs/admission.h"
#include "server/jobs/checkpoint_requests.h"
#include "server/jobs/dispatcher.h"
#include "server/jobs/evaluation_leases.h"
#include "server/jobs/job_attempts.h"
#include "server/jobs/job_context.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/job_queries.h"
#include "server/jobs/job_requests.h"
#include "server/jobs/job_stops.h"
#include "server/jobs/metric_reports.h"
#include "server/jobs/precision_control.h"
#include "server/jobs/submissions.h"
#include "server/jobs/worker_reports.h"
#include "server/ledger/job_ledger.h"

namespace genesis {

// The lifecycle of jobs. Turns user requests and worker reports into legal moves of job_state.h,
// each durable before it is reported, and assigns queued jobs to warm workers. Its parts are
// declared below so that each uses only those above it.
//
// Owner: the daemon. Threads: any thread may call any method except OnTime. Only Recover and Stop
// block. Changes and callbacks run on the writer thread in the order of the calls.
// Failure: a request gets the store's status if its change cannot be made durable; a worker's
// report is kept and retried.
class JobManager {
 public:
  using Options = JobManagerOptions;

  JobManager(Options options, JobStore* store, Workers* workers, Metrics* metrics,
             const Clock& clock = Clock::System());
  ~JobManager();

  // Loads the store. A job whose worker is alive keeps it; any other job that was on a worker
  // returns to the queue. Must be called before Start and before WorkerPool::Start.
  absl::Status Recover();
  void Start();
  // Admits no new jobs, starts no attempts, and stops every running job with a checkpoint. The
  // stopped jobs return to the queue and resume at the next start.
  void Drain();
  // Runs the queued tasks, then ends the writer thread. Idempotent.
  void Stop();

  Admission& admission() { return admission_; }
  JobRequests& requests() { return requests_; }
  CheckpointRequests& checkpoints() { return checkpoints_; }
  PrecisionControl& precision() { return precision_; }
  JobQueries& queries() { return queries_; }
  EvaluationLeases& evaluations() { return evaluations_; }
  // Receives the reports of the pool.
  WorkerEvents* worker_events() { return &reports_; }
  // Reads events, checkpoints, and jobs without their queue positions.
  const JobView& view() const { return ledger_.view(); }

  EventLog& event_log() { return ledger_.hub().log(); }

  // Sets what happens when too many jobs in reduced precision fail.
  void SetFailureWatch(FailureWatchAction action);
  // Sets the limits of each owner.
  void SetQuotas(const QuotaSettings& quotas);
  // Runs `write`, for records other than jobs, in the next commit. `done` gets the store's status,
  // on the writer thread.
  void Write(std::function<absl::Status(Database&)> write,
             std::function<void(const absl::Status&)> done);
  // Runs `alive` on the writer thread, as a liveness check.
  void AskWriter(std::function<void()> alive);
  // Returns why the store refuses changes; OK if it accepts them.
  absl::Status store_status() { return ledger_.writer().store_status(); }
  // Handles everything that depends on time alone: deadlines, retries, quarantines. Called by the
  // writer thread a few times a second.
  void OnTime();

 private:
  const Options options_;
  TrainingStats stats_;
  JobLedger ledger_;
  JobStops stops_;
  PrecisionControl precision_;
  CheckpointRequests checkpoints_;
  Dispatcher dispatcher_;
  const JobContext context_;
  JobAttempts attempts_;
  MetricReports metric_reports_;
  WorkerReports reports_;
  Submissions submissions_;
  JobQueries queries_;
  Admission admission_;
  JobRequests requests_;
  EvaluationLeases evaluations_;
  Metrics* const metrics_;
};

}  // namespace genesis
