#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "metrics/metrics.h"

namespace genesis {

// The time since which each running job has work that is in no checkpoint and would be lost with
// its worker. Exports the oldest of these times as a metric.
//
// Owner: JobManager. Threads: the writer's only. Failure: none.
class UnprotectedWork {
 public:
  explicit UnprotectedWork(Metrics* metrics) : metrics_(metrics) {}

  // Called when an attempt is about to start its first step.
  void Begin(const std::string& job_id, absl::Time now);
  // Called when a worker has survived a restart of the daemon. The time comes from the job record.
  void Adopt(const training::v1::Job& job);
  // Called when a checkpoint with the work done until `snapshot` is durable.
  void Protect(const std::string& job_id, absl::Time snapshot);
  // Called when the job is no longer on a worker.
  void End(const std::string& job_id);

 private:
  void Show() const;

  Metrics* const metrics_;
  std::map<std::string, absl::Time> since_;
};

}  // namespace genesis
