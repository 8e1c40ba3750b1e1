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

// Sums over steps since some moment.
struct StepTotals {
  int64_t steps = 0;
  int64_t samples = 0;
  int64_t reduced_precision_steps = 0;
  int64_t overflow_steps = 0;  // Skipped steps among reduced_precision_steps.

  // overflow_steps over reduced_precision_steps; 0 before the first.
  double OverflowRate() const;
  void Add(const training::v1::Steps& steps);
};

// Totals at regular moments of the last hour.
class TotalsHistory {
 public:
  explicit TotalsHistory(absl::Duration resolution) : resolution_(resolution) {}

  // Keeps the totals if the last kept ones are old enough.
  void Sample(const StepTotals& totals, absl::Time now);
  // From the sample nearest to `length` ago until now.
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

// The daemon's one record of training: totals of all jobs, the course of recent jobs, and the
// newest measurements of jobs that have a worker. The Stats call, the metrics history and /metrics
// read it. Bounded: an hour of totals, 256 points a job, 64 jobs.
//
// Owner: JobManager. Threads: any. Failure: none.
class TrainingStats {
 public:
  explicit TrainingStats(Metrics* metrics) : metrics_(metrics) {}

  // The job has a worker and is to run so; `fp32_peak_bytes`: peak device memory of the same
  // workload in FP32, 0 if it is not known.
  void NoteBegin(const std::string& job_id, const training::v1::EffectivePrecision& precision,
                 int64_t fp32_peak_bytes);
  // The precision that the job really runs in.
  void NotePrecision(const std::string& job_id, const training::v1::EffectivePrecision& precision);
  void NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                 training::v1::PrecisionMode mode, absl::Time now);
  void NoteHeldOut(const std::string& job_id, double loss);
  // Share of a step, 0 to 1, that the rank with the longest wait spends waiting for the others.
  void NoteWait(const std::string& job_id, double ratio);
  // The job has left its worker: /metrics shows nothing of it any longer.
  void NoteLeave(const std::string& job_id);
  // A job succeeded after `seconds` on workers.
  void NoteSuccess(double seconds);
  // A few times a second.
  void Sample(absl::Time now);

  // Totals of all jobs since the daemon started.
  StepTotals Totals() const;
  // Whether the newest step of any job ran in reduced precision.
  bool newest_step_reduced() const;
  // How long jobs stay on workers: a moving average over those that succeeded; 0 before the first.
  double expected_job_seconds() const;
  training::v1::StatsWindow Window(absl::Duration length, absl::Time now) const;
  // Empty when nothing is known of the job.
  training::v1::StatsWindow WindowOf(const std::string& job_id, absl::Duration length,
                                     absl::Time now) const;
  std::vector<training::v1::HistoryPoint> HistoryOf(const std::string& job_id) const;
  // Bytes that the allocator of the job's worker holds; nullopt without a device or a worker.
  std::optional<int64_t> DeviceMemoryOf(const std::string& job_id) const;
  // Bytes that the allocators of all workers hold, by "fp32", "fp16", "bf16".
  std::map<std::string, int64_t> DeviceMemory() const;

 private:
  struct JobStats {
    StepTotals totals;
    TotalsHistory history{absl::Seconds(10)};
    std::vector<training::v1::HistoryPoint> points;
    int64_t reports = 0;
    int64_t stride = 1;  // Number of reports for each point that is kept.
    uint64_t last_use = 0;
  };

  JobStats& StatsOf(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics* const metrics_;
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
