#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "metrics/metrics.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/job_stops.h"
#include "server/jobs/owner_quotas.h"
#include "server/jobs/precision_control.h"
#include "server/jobs/scheduler.h"
#include "server/ledger/job_ledger.h"
#include "server/ledger/training_stats.h"
#include "server/workers/workers.h"

namespace genesis {

// The queue of jobs. Decides which job gets a slot next, when it may start, and which running job
// yields its slot; also sets the parameters of each attempt.
//
// Owner: JobManager. Threads: any for Drain(), draining() and usage(); the writer's for the rest.
class Dispatcher {
 public:
  Dispatcher(const JobManagerOptions& options, JobLedger* ledger, JobStops* stops,
             PrecisionControl* precision, TrainingStats* stats, Workers* workers, Metrics* metrics)
      : options_(options),
        ledger_(*ledger),
        table_(ledger->table()),
        writer_(ledger->writer()),
        clock_(ledger->clock()),
        stops_(*stops),
        precision_(*precision),
        stats_(*stats),
        workers_(workers),
        metrics_(metrics),
        quotas_(options.quotas) {}

  // Assigns queued jobs to warm workers once the current change is durable.
  void StartQueued();
  // Handles everything that depends on time alone. Called a few times a second.
  void OnTime();
  // Starts no further attempts. Any thread may call it.
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }

  // Events of a job's life that the queue tracks.
  void OnAccepted(const std::string& job_id);
  void OnRecovered(const training::v1::Job& job);  // Loaded from the store.
  void OnAdopted(const std::string& job_id);       // The job's worker outlived the daemon.
  // Charges the slot time of a job that left its worker to its owner; false if no attempt ran.
  bool OnLeftWorker(training::v1::Job& job);
  void OnEnded(const std::string& job_id);
  // Starts no attempt at the job before `backoff` has passed.
  void RetryAfter(const std::string& job_id, absl::Duration backoff);
  // Records the peak memory of an attempt, used to place later jobs of the same workload.
  void NotePeak(training::v1::Job& job, int64_t host_bytes, int64_t device_bytes);

  // Returns true if an attempt at the queued job may start now, that is, after its backoff and
  // before its deadline.
  bool MayStart(const training::v1::Job& job) const { return MayStart(job, clock_.Steady()); }
  absl::Time DeadlineOf(const training::v1::Job& job) const;
  // Returns the bytes that the job is expected to need; 0 if unknown.
  int64_t MemoryOf(const training::v1::JobSpec& spec) const;
  const OwnerUsage& usage() const { return usage_; }
  OwnerQuotas& quotas() { return quotas_; }
  const OwnerQuotas& quotas() const { return quotas_; }

 private:
  // Assigns the next job that can start. Returns its leased workers; empty if no job is waiting or
  // too few workers are free.
  std::vector<std::string> AssignNext();
  // Same, for jobs whose workers a cluster starts.
  std::vector<std::string> AssignSubmitted(absl::Time now);
  void Assign(const std::string& job_id, const std::vector<WorkerLease>& leases);
  // Builds the part of StartJob that is the same for all workers of an attempt.
  training::v1::StartJob MakeStart(const training::v1::Job& job) const;
  // Returns the precision of an attempt on these workers. Each of their hosts can forbid a mode.
  training::v1::EffectivePrecision PrecisionOf(const training::v1::JobSpec& spec,
                                               const std::vector<WorkerLease>& leases) const;
  // Returns the precision modes that all of the workers may change to.
  std::vector<training::v1::PrecisionMode> AllowedOn(const training::v1::PrecisionSpec& spec,
                                                     const std::vector<WorkerLease>& leases) const;
  // Returns true if free slots must be kept for the job at the head of the queue: its workers are
  // starting or other jobs are stopping. Stops jobs of lower priority if that makes enough room.
  bool MakeRoomFor(const training::v1::Job& waiting);
  int RanksOf(const training::v1::Job& job) const;
  // Reserves workers for all ranks of the job. If it has waited long enough, reserves
  // as many as are available.
  std::vector<WorkerLease> ReserveFor(const training::v1::Job& job, absl::Time now);
  bool MayBeginWithFewer(const training::v1::Job& job, absl::Time now) const;
  // Stops a job that runs with fewer ranks than requested, if there are now slots for all.
  void GrowOne(absl::Time now);
  bool MayStart(const training::v1::Job& job, absl::Time now) const;
  absl::Time AcceptedAt(const training::v1::Job& job) const;
  std::vector<std::string> QueueInOrder() const;
  std::vector<HoldingJob> HoldingJobs() const;

  const JobManagerOptions& options_;
  JobLedger& ledger_;
  JobTable& table_;
  Writer& writer_;
  const Clock& clock_;
  JobStops& stops_;
  PrecisionControl& precision_;
  TrainingStats& stats_;
  Workers* const workers_;
  Metrics* const metrics_;
  std::atomic<bool> draining_{false};
  OwnerQuotas quotas_;
  OwnerUsage usage_;
  // Acceptance times (Clock::Steady) of unfinished jobs, keyed by job ID.
  std::map<std::string, absl::Time> accepted_;
  // Times at which jobs left their workers after an attempt, keyed by job ID.
  std::map<std::string, absl::Time> left_;
  std::map<std::string, absl::Time> retries_;         // Earliest start of the next attempt.
  std::map<std::string, absl::Time> attempt_starts_;  // Start of the attempt on a worker.
  std::map<std::string, int64_t> peak_memory_;        // Bytes, keyed by workload.
};

}  // namespace genesis
