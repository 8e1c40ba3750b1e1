#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The memory of the workers' CUDA allocators, in bytes.
struct AllocatorMemory {
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t peak = 0;
};

// The values of one running job. A value that was not measured is unset.
struct JobStatistics {
  std::string job_id;
  int64_t steps = 0;           // Since the attempt began.
  int64_t overflow_steps = 0;  // Skipped steps in reduced precision, since the attempt began.
  std::optional<double> loss = {};
  std::optional<double> divergence = {};
  std::optional<double> speed_ratio = {};
  std::optional<double> wait_ratio = {};
};

// The gauges of running jobs. Only those of `jobs` have a job label. A value that no running job
// has is unset.
struct RunningStatistics {
  static constexpr size_t kMaxJobs = 64;

  // From one job, so that the values are consistent: a job whose loss is not finite, otherwise the
  // job that diverges most from FP32, otherwise the one that reported last. If the FP32 loss is
  // known, both losses are means over the watchdog's window.
  std::optional<double> loss;
  std::optional<double> baseline_loss;
  std::optional<double> divergence;  // (loss - baseline_loss) / baseline_loss.
  std::optional<double> grad_norm;
  // Each of the next two is the value of the job that reported last among the jobs that have one.
  std::optional<double> loss_scale;
  std::optional<double> held_out_loss;
  // Peak memory relative to FP32 on the same workload, from the job with the largest ratio.
  std::optional<double> memory_ratio;
  // Speed relative to FP32 on the same workload, from the job with the smallest ratio.
  std::optional<double> speed_ratio;
  // Fraction of a step that a rank waits for others, from the job with the largest fraction.
  std::optional<double> wait_ratio;
  std::map<std::string, AllocatorMemory> memory;  // Sums over jobs, by label of the mode.
  std::set<std::pair<std::string, std::string>> precisions;  // Labels of mode and device.
  // At most kMaxJobs jobs: those whose loss is not finite, then those that diverge most.
  std::vector<JobStatistics> jobs;
};

// The newest measurements of each job on a worker.
//
// Owner: TrainingStats. Threads: one at a time. Memory is bounded by the number of running jobs.
class RunningJobs {
 public:
  // Called when the job has a worker, with the precision it will run in. `fp32_peak_bytes` is the
  // peak device memory of the same workload in FP32; 0 if unknown.
  void Begin(const std::string& job_id, const training::v1::EffectivePrecision& precision,
             int64_t fp32_peak_bytes);
  // Records the precision in which the job actually runs.
  void SetPrecision(const std::string& job_id, const training::v1::EffectivePrecision& precision);
  void NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                 training::v1::PrecisionMode mode);
  void NoteHeldOut(const std::string& job_id, double loss);
  // Records the largest fraction of a step, 0 to 1, that a rank spends waiting for other ranks.
  void NoteWait(const std::string& job_id, double ratio);
  void End(const std::string& job_id);

  RunningStatistics Statistics() const;
  // Returns the bytes held by the CUDA allocator of the job's rank 0; nullopt if not reported.
  std::optional<int64_t> AllocatedBy(const std::string& job_id) const;

 private:
  struct Job {
    training::v1::PrecisionMode mode = training::v1::PRECISION_MODE_UNSPECIFIED;
    std::string device;
    int64_t fp32_peak_bytes = 0;
    int64_t report = 0;  // Number of the newest report; 0 before the first step.
    training::v1::Progress progress;
    std::optional<double> held_out_loss;
    std::optional<AllocatorMemory> memory;
    std::optional<double> wait_ratio;
    int64_t steps = 0;
    int64_t overflow_steps = 0;
  };
  static bool IsBefore(const Job& a, const Job& b);
  std::vector<JobStatistics> ByJob() const;

  std::map<std::string, Job> jobs_;
  int64_t reports_ = 0;
};

}  // namespace genesis
