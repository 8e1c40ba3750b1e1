#pragma once

#include <mutex>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "metrics/metrics.h"
#include "metrics/running_jobs.h"

namespace genesis {

// Metrics together with the statistics of running jobs, as the daemon combines them.
class MetricsOfJobs : public Metrics {
 public:
  using Metrics::Metrics;

  void Steps(const std::string& job_id, const training::v1::Steps& steps,
             training::v1::PrecisionMode mode) {
    Metrics::Steps(steps, mode);
    Change([&](RunningJobs& jobs) { jobs.NoteSteps(job_id, steps, mode); });
  }
  void JobBegins(const std::string& job_id, const training::v1::EffectivePrecision& precision,
                 int64_t fp32_peak_bytes) {
    Change([&](RunningJobs& jobs) { jobs.Begin(job_id, precision, fp32_peak_bytes); });
  }
  void SetEffectivePrecision(const std::string& job_id,
                             const training::v1::EffectivePrecision& precision) {
    Change([&](RunningJobs& jobs) { jobs.SetPrecision(job_id, precision); });
  }
  void Evaluated(const std::string& job_id, double loss) {
    Change([&](RunningJobs& jobs) { jobs.NoteHeldOut(job_id, loss); });
  }
  void RanksWait(const std::string& job_id, double ratio) {
    Change([&](RunningJobs& jobs) { jobs.NoteWait(job_id, ratio); });
  }
  void JobLeaves(const std::string& job_id) {
    Change([&](RunningJobs& jobs) { jobs.End(job_id); });
  }

 private:
  template <typename Action>
  void Change(Action action) {
    const std::lock_guard<std::mutex> lock(mutex_);
    action(jobs_);
    ShowRunning(jobs_.Statistics());
  }

  std::mutex mutex_;
  RunningJobs jobs_;
};

}  // namespace genesis
