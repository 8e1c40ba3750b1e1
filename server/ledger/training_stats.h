#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "metrics/metrics.h"
#include "metrics/running_jobs.h"

namespace genesis {

// Sums over the steps since some moment.
struct StepTotals {
  int64_t steps = 0;
  int64_t samples = 0;
  int64_t reduced_precision_steps = 0;
  int64_t overflow_steps = 0;  // Skipped steps among reduced_precision_steps.

  // Returns overflow_steps / reduced_precision_steps; 0 before the first such step.
  double OverflowRate() const;
  void Add(const training::v1::Steps& steps);
};

// The totals at regular moments of the last hour.
class TotalsHistory {
 public:
  explicit TotalsHistory(absl::Duration resolution) : resolution_(resolution) {}

  // Keeps the totals as a sample if the last sample is older than the resolution.
  void Sample(const StepTotals& totals, absl::Time now);
  // Returns statistics since the newest sample that is at least `length` old, or since the oldest.
  training::v1::StatsWindow Window(const StepTotals& totals, absl::Duration length,
                                   absl::Time now) const;

 private:
  struct Moment {
    absl::Time time;
    StepTotals totals;
  };
  const absl::Duration resolution_;
  std::deque<Moment> moments_;
};

// The training statistics of the daemon: totals of all jobs, loss curves of recent jobs, and the
// newest measurements of jobs with a worker. Read by the Stats call, the metrics history and
// /metrics. Bounded: one hour of totals, 256 points per job, 64 jobs.
//
// Owner: JobManager. Threads: any. Failure: none.
class TrainingStats {
 public:
  // `names_jobs`: whether /metrics, which any scraper can read, has series of single jobs.
  explicit TrainingStats(Metrics* metrics, bool names_jobs = true)
      : metrics_(metrics), names_jobs_(names_jobs) {}

  // Called when the job has a worker, with the precision it will run in. `fp32_peak_bytes` is the
  // peak device memory of the same workload in FP32; 0 if unknown.
  void NoteBegin(const std::string& job_id, const training::v1::EffectivePrecision& precision,
                 int64_t fp32_peak_bytes);
  // Records the precision in which the job actually runs.
  void NotePrecision(const std::string& job_id, const training::v1::EffectivePrecision& precision);
  void NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                 training::v1::PrecisionMode mode, absl::Time now);
  void NoteHeldOut(const std::string& job_id, double loss);
  // Records the largest fraction of a step, 0 to 1, that a rank spends waiting for other ranks.
  void NoteWait(const std::string& job_id, double ratio);
  // Called when the job has left its worker. /metrics no longer shows it.
  void NoteLeave(const std::string& job_id);
  // Removes the statistics of a deleted job, whose ID a later job may have.
  void Forget(const std::string& job_id);
  // Called when a job has succeeded after `seconds` on workers.
  void NoteSuccess(double seconds);
  // Keeps a sample of the totals. Called a few times a second.
  void Sample(absl::Time now);

  // Returns the totals of all jobs since the daemon started.
  StepTotals Totals() const;
  // Returns true if the newest step, of whichever job, ran in reduced precision.
  bool newest_step_reduced() const;
  // Returns a moving average of the time that successful jobs spent on workers; 0 before the first.
  double expected_job_seconds() const;
  training::v1::StatsWindow Window(absl::Duration length, absl::Time now) const;
  // Returns statistics of one job; empty if nothing is known about it.
  training::v1::StatsWindow WindowOf(const std::string& job_id, absl::Duration length,
                                     absl::Time now) const;
  std::vector<training::v1::HistoryPoint> HistoryOf(const std::string& job_id) const;
  // Returns the bytes allocated (not reserved) on CUDA by rank 0 of the job; nullopt if unknown.
  std::optional<int64_t> DeviceMemoryOf(const std::string& job_id) const;
  // Returns these bytes, summed over all running jobs, keyed by "fp32", "fp16" and "bf16".
  std::map<std::string, int64_t> DeviceMemory() const;

 private:
  struct JobStats {
    StepTotals totals;
    TotalsHistory history{absl::Seconds(10)};
    std::vector<training::v1::HistoryPoint> points;
    int64_t reports = 0;
    int64_t stride = 1;  // Number of reports per kept point.
    uint64_t last_use = 0;
  };

  JobStats& StatsOf(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowRunning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics* const metrics_;
  const bool names_jobs_;
  mutable absl::Mutex mutex_;
  StepTotals totals_ ABSL_GUARDED_BY(mutex_);
  TotalsHistory history_ ABSL_GUARDED_BY(mutex_){absl::Seconds(1)};
  std::map<std::string, JobStats> jobs_ ABSL_GUARDED_BY(mutex_);
  RunningJobs running_ ABSL_GUARDED_BY(mutex_);
  bool newest_step_reduced_ ABSL_GUARDED_BY(mutex_) = false;
  double expected_job_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace genesis
