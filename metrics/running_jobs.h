#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Memory that the CUDA allocators of workers hold. Bytes.
struct AllocatorMemory {
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t peak = 0;
};

// The gauges without a job label, over the jobs that run. A value that no running job has is unset.
struct RunningStatistics {
  // From one job, so that the values fit each other: one whose loss is not finite, else the one
  // that is furthest from FP32, else the one that reported last. Where FP32's loss is known, both
  // losses are means over the watchdog's window.
  std::optional<double> loss;
  std::optional<double> baseline_loss;
  std::optional<double> divergence;  // (loss - baseline_loss) / baseline_loss.
  std::optional<double> grad_norm;
  // From the job that reported it last.
  std::optional<double> loss_scale;
  std::optional<double> held_out_loss;
  // From the job where it is largest: its peak over FP32's of the same workload.
  std::optional<double> memory_ratio;
  // From the job where it is smallest: its speed in units of FP32's on the same workload.
  std::optional<double> speed_ratio;
  // From the job of several ranks where it is largest.
  std::optional<double> wait_ratio;
  std::map<std::string, AllocatorMemory> memory;  // Sums over jobs, by label of the mode.
  std::set<std::pair<std::string, std::string>> precisions;  // Labels of the mode and device.
};

// The newest figures of each job that is on a worker.
//
// Owner: TrainingStats. Threads: one at a time. Bounded by the number of slots.
class RunningJobs {
 public:
  // The job has a worker and is to run so; `fp32_peak_bytes`: what the same workload took of device
  // memory in FP32, 0 when that is not known.
  void Begin(const std::string& job_id, const training::v1::EffectivePrecision& precision,
             int64_t fp32_peak_bytes);
  // The precision that the job really runs in.
  void SetPrecision(const std::string& job_id, const training::v1::EffectivePrecision& precision);
  void NoteSteps(const std::string& job_id, const training::v1::Steps& steps,
                 training::v1::PrecisionMode mode);
  void NoteHeldOut(const std::string& job_id, double loss);
  // The part of a step in which the rank that waits longest waits for the others, 0 to 1.
  void NoteWait(const std::string& job_id, double ratio);
  void End(const std::string& job_id);

  RunningStatistics Statistics() const;
  // Bytes that the allocator of the job's worker holds; nullopt without a device or a worker.
  std::optional<int64_t> AllocatedBy(const std::string& job_id) const;

 private:
  struct Job {
    training::v1::PrecisionMode mode = training::v1::PRECISION_MODE_UNSPECIFIED;
    std::string device;
    int64_t fp32_peak_bytes = 0;
    int64_t report = 0;  // Number of the newest report; 0 before the first finished step.
    training::v1::Progress progress;
    std::optional<double> held_out_loss;
    std::optional<AllocatorMemory> memory;
    std::optional<double> wait_ratio;
  };
  static bool IsBefore(const Job& a, const Job& b);

  std::map<std::string, Job> jobs_;
  int64_t reports_ = 0;
};

}  // namespace genesis
