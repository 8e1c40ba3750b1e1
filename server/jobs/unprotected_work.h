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
// Owner: JobManager. Threads: the writer's. Failure: none.
class UnprotectedWork {
 public:
  explicit UnprotectedWork(Metrics* metrics) : metrics_(metrics) {}

  // An attempt starts its first step now.
  void Begin(const std::string& job_id, absl::Time now);
  // A worker survived a restart of the daemon. Its past is known from the job alone.
  void Adopt(const training::v1::Job& job);
  // A checkpoint with the work until `snapshot` is durable.
  void Protect(const std::string& job_id, absl::Time snapshot);
  // The job is on no worker any more.
  void End(const std::string& job_id);

 private:
  void Show() const;

  Metrics* const metrics_;
  std::map<std::string, absl::Time> since_;
};

}  // namespace genesis
