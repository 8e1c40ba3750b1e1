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
#include "server/jobs/precision_control.h"
#include "server/jobs/scheduler.h"
#include "server/ledger/job_ledger.h"
#include "server/ledger/training_stats.h"
#include "server/workers/workers.h"

namespace genesis {

// The queue: which job gets a slot next, when it may start, which running one gives its slot, and
// what an attempt is given.
//
// Owner: JobManager. Threads: draining() and usage() are for any, the rest is the writer's.
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
        metrics_(metrics) {}

  // After the present change is durable, gives queued jobs to warm workers.
  void StartQueued();
  // Looks at what depends on time alone; a few times a second.
  void OnTime();
  // No attempt begins from now on. Any thread.
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }

  // The events of a job's life that the queue must know.
  void OnAccepted(const std::string& job_id);
  void OnRecovered(const training::v1::Job& job);  // It was in the store.
  void OnAdopted(const std::string& job_id);       // Its worker outlived the daemon.
  // It is off its worker: the slot is counted to its owner. False when no attempt was under way.
  bool OnLeftWorker(training::v1::Job& job);
  void OnEnded(const std::string& job_id);
  // Queues no attempt before `backoff` has passed.
  void RetryAfter(const std::string& job_id, absl::Duration backoff);
  // Bytes that an attempt used; jobs of the same workload are placed by it.
  void NotePeak(training::v1::Job& job, int64_t host_bytes, int64_t device_bytes);

  // Whether an attempt at the queued job may begin now: not before its backoff, nor after its
  // deadline.
  bool MayStart(const training::v1::Job& job) const { return MayStart(job, clock_.Steady()); }
  absl::Time DeadlineOf(const training::v1::Job& job) const;
  // Bytes that the job is expected to need; 0 when nothing is known.
  int64_t MemoryOf(const training::v1::JobSpec& spec) const;
  const OwnerUsage& usage() const { return usage_; }

 private:
  // The workers it leased for the next job; none when there is no job or too few workers for one.
  std::vector<std::string> AssignNext();
  // The same among the jobs whose workers a cluster has started for them.
  std::vector<std::string> AssignSubmitted(absl::Time now);
  void Assign(const std::string& job_id, const std::vector<WorkerLease>& leases);
  // Makes the part of an attempt that all its workers are given alike.
  training::v1::StartJob MakeStart(const training::v1::Job& job) const;
  // The precision of an attempt on these workers, for any of their hosts' no wins.
  training::v1::EffectivePrecision PrecisionOf(const training::v1::JobSpec& spec,
                                               const std::vector<WorkerLease>& leases) const;
  // The modes that each of the workers may change to.
  std::vector<training::v1::PrecisionMode> AllowedOn(const training::v1::PrecisionSpec& spec,
                                                     const std::vector<WorkerLease>& leases) const;
  // Whether what becomes free is to be kept for the first job of the queue: workers are started for
  // it, or jobs of lower priority are being stopped, which this does where it helps.
  bool MakeRoomFor(const training::v1::Job& waiting);
  int RanksOf(const training::v1::Job& job) const;
  // Workers for all ranks of the job, or for as many as there are once it has waited long enough.
  std::vector<WorkerLease> ReserveFor(const training::v1::Job& job, absl::Time now);
  bool MayBeginWithFewer(const training::v1::Job& job, absl::Time now) const;
  // Stops a job that began with fewer ranks than it wants when there are slots for all.
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
  OwnerUsage usage_;
  // Times of Clock::Steady, by job that has not ended.
  std::map<std::string, absl::Time> accepted_;
  std::map<std::string, absl::Time> left_;            // Its workers, after its last attempt.
  std::map<std::string, absl::Time> retries_;         // Before it no attempt begins.
  std::map<std::string, absl::Time> attempt_starts_;  // On a worker.
  std::map<std::string, int64_t> peak_memory_;        // By workload.
};

}  // namespace genesis
