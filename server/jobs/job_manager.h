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
// each durable before anybody hears of it, and gives queued jobs to warm workers. Its parts are
// declared below in the order in which they use each other.
//
// Owner: the daemon. Threads: every method may be called by any thread and returns at once; changes
// run on the writer thread in the order they came, and callbacks run there. Failure: a request is
// refused with the store's status when it cannot be made durable; a worker's report is kept and
// tried again.
class JobManager {
 public:
  using Options = JobManagerOptions;

  JobManager(Options options, JobStore* store, Workers* workers, Metrics* metrics,
             const Clock& clock = Clock::System());
  ~JobManager();

  // Loads the store. A job whose worker lives on keeps it; any other that was on a worker goes back
  // into the queue. Before Start, and before the pool's.
  absl::Status Recover();
  void Start();
  // No new jobs and no new leases; asks every running job for a checkpoint and its end. They are
  // queued again in the store, for the next start.
  void Drain();
  // Ends the writer thread after what waits. Idempotent.
  void Stop();

  Admission& admission() { return admission_; }
  JobRequests& requests() { return requests_; }
  CheckpointRequests& checkpoints() { return checkpoints_; }
  PrecisionControl& precision() { return precision_; }
  JobQueries& queries() { return queries_; }
  // Where the pool reports.
  WorkerEvents* worker_events() { return &reports_; }
  // Events, checkpoints, and jobs without their places in the queue.
  const JobView& view() const { return ledger_.view(); }

  // The consequence, from now on, of too many failed jobs in reduced precision.
  void SetFailureWatch(FailureWatchAction action);
  // Called back by the writer thread, which lives then.
  void AskWriter(std::function<void()> alive);
  // Why the store refuses changes; OK when it takes them.
  absl::Status store_status() { return ledger_.writer().store_status(); }
  // Looks at what depends on time alone: deadlines, retries, quarantines. The writer thread calls
  // it a few times a second.
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
