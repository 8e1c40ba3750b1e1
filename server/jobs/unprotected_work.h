#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "metrics/metrics.h"

namespace genesis {

// Since when each running job has made work that is in no checkpoint, and so would be lost with its
// worker; shows the oldest of these moments as a metric.
//
// Owner: JobManager. Threads: the writer's. Failure: none.
class UnprotectedWork {
 public:
  explicit UnprotectedWork(Metrics* metrics) : metrics_(metrics) {}

  // An attempt makes its first step now.
  void Begin(const std::string& job_id, absl::Time now);
  // A worker lived through a restart of the daemon. Its past is known from the job alone.
  void Adopt(const training::v1::Job& job);
  // A checkpoint is durable, that holds what was done until `snapshot`.
  void Protect(const std::string& job_id, absl::Time snapshot);
  // No worker has the job any more.
  void End(const std::string& job_id);

 private:
  void Show() const;

  Metrics* const metrics_;
  std::map<std::string, absl::Time> since_;
};

}  // namespace genesis
