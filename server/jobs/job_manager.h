#pragma once

#include <functional>

#include "server/jobs/admission.h"
#include "server/jobs/checkpoint_requests.h"
#include "server/jobs/dispatcher.h"
#include "server/jobs/job_attempts.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/job_queries.h"
#include "server/jobs/job_requests.h"
#include "server/jobs/job_stops.h"
#include "server/jobs/precision_control.h"
#include "server/jobs/submissions.h"
#include "server/jobs/worker_reports.h"
#include "server/ledger/job_ledger.h"

namespace genesis {

// The life of jobs: turns requests of users and reports of workers into legal moves of job_state.h,
// each durable before it is reported, and assigns queued jobs to warm workers. Its parts are
// declared below in the order in which they use each other.
//
// Owner: the daemon. Threads: every method may be called by any thread and returns immediately;
// changes run on the writer thread in the order of the calls, and callbacks run there. Failure: a
// request is refused with the store's status if it cannot be made durable; a worker's report is
// kept and tried again.
class JobManager {
 public:
  using Options = JobManagerOptions;

  JobManager(Options options, JobStore* store, Workers* workers, Metrics* metrics,
             const Clock& clock = Clock::System());
  ~JobManager();

  // Loads the store. A job whose worker still lives keeps it; any other job that was on a worker
  // returns to the queue. Must be called before Start, and before that of the pool.
  absl::Status Recover();
  void Start();
  // Admits no new jobs and no new leases; stops every running job with a checkpoint. The store
  // queues them again for the next start.
  void Drain();
  // Ends the writer thread after its pending tasks. Idempotent.
  void Stop();

  Admission& admission() { return admission_; }
  JobRequests& requests() { return requests_; }
  CheckpointRequests& checkpoints() { return checkpoints_; }
  PrecisionControl& precision() { return precision_; }
  JobQueries& queries() { return queries_; }
  // Receives the reports of the pool.
  WorkerEvents* worker_events() { return &reports_; }
  // Events, checkpoints, and jobs without their positions in the queue.
  const JobView& view() const { return ledger_.view(); }

  // Sets the consequence of too many failed jobs in reduced precision.
  void SetFailureWatch(FailureWatchAction action);
  // Runs `alive` on the writer thread, as a liveness check.
  void AskWriter(std::function<void()> alive);
  // Returns why the store refuses changes; OK if it accepts them.
  absl::Status store_status() { return ledger_.writer().store_status(); }
  // Handles everything that depends on time alone: deadlines, retries, quarantines. The writer
  // thread calls it a few times a second.
  void OnTime();

 private:
  const Options options_;
  TrainingStats stats_;
  JobLedger ledger_;
  JobStops stops_;
  PrecisionControl precision_;
  CheckpointRequests checkpoints_;
  Dispatcher dispatcher_;
  JobAttempts attempts_;
  WorkerReports reports_;
  Submissions submissions_;
  JobQueries queries_;
  Admission admission_;
  JobRequests requests_;
  Metrics* const metrics_;
};

}  // namespace genesis
