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

namespace genesis {

// The sums up to one moment.
struct StepSums {
  int64_t steps = 0;
  int64_t samples = 0;
  int64_t reduced_precision_steps = 0;
  int64_t overflow_steps = 0;  // Those of reduced_precision_steps that were skipped.

  // overflow_steps over reduced_precision_steps; 0 before the first.
  double OverflowRate() const;
  void Add(const training::v1::Steps& steps);
};

// Sums at regular moments, the newest hour of them, so that what happened lately can be told.
class SumHistory {
 public:
  explicit SumHistory(absl::Duration resolution) : resolution_(resolution) {}

  // Keeps the sums if the last ones are old enough.
  void Sample(const StepSums& sums, absl::Time now);
  // From the sample nearest to `length` ago until now.
  training::v1::StatsWindow Window(const StepSums& sums, absl::Duration length,
                                   absl::Time now) const;

 private:
  struct Moment {
    absl::Time time;
    StepSums sums;
  };
  const absl::Duration resolution_;
  std::deque<Moment> moments_;
};

// Figures of training over time: of all jobs, and of those that run or ended last. Bounded: an hour
// of sums, 256 points a job, 64 jobs.
//
// Owner: JobManager. Threads: any. Failure: none.
class TrainingStats {
 public:
  void NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                 training::v1::PrecisionMode mode, absl::Time now);
  // A few times a second.
  void Sample(absl::Time now);

  // The sums of all jobs since the daemon started.
  StepSums Totals() const;
  training::v1::StatsWindow Window(absl::Duration length, absl::Time now) const;
  // Empty when nothing is known of the job.
  training::v1::StatsWindow WindowOf(const std::string& job_id, absl::Duration length,
                                     absl::Time now) const;
  std::vector<training::v1::HistoryPoint> HistoryOf(const std::string& job_id) const;
  // Bytes that the job's worker reported last; nothing without a device.
  std::optional<int64_t> DeviceMemoryOf(const std::string& job_id) const;
  // Bytes by "fp32", "fp16", "bf16".
  std::map<std::string, int64_t> DeviceMemory() const;

 private:
  struct JobStats {
    StepSums sums;
    SumHistory history{absl::Seconds(10)};
    std::vector<training::v1::HistoryPoint> points;
    int64_t reports = 0;
    int64_t stride = 1;  // Every how many reports a point is kept.
    uint64_t last_use = 0;
    std::optional<int64_t> device_memory;
  };

  JobStats& StatsOf(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  StepSums sums_ ABSL_GUARDED_BY(mutex_);
  SumHistory history_ ABSL_GUARDED_BY(mutex_){absl::Seconds(1)};
  std::map<std::string, JobStats> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> device_memory_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace genesis
