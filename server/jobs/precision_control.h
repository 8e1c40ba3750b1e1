#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "config/precision/gate.h"
#include "genesis/training/v1/operations.pb.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/auth/caller.h"
#include "server/base/callback.h"
#include "server/jobs/failure_watch.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/job_stops.h"
#include "server/ledger/job_ledger.h"
#include "server/workers/workers.h"

namespace genesis {

// The gate of reduced precision, which combines the settings, the operator's policy and the failure
// watch. Any of the three can close it; the reason names all that do.
//
// Owner: JobManager. Threads: any for gate(), policy(), SetPolicy(); the writer's for the rest.
class PrecisionControl {
 public:
  PrecisionControl(const JobManagerOptions& options, JobLedger* ledger, JobStops* stops,
                   Workers* workers, Metrics* metrics)
      : options_(options),
        table_(ledger->table()),
        writer_(ledger->writer()),
        clock_(ledger->clock()),
        stops_(*stops),
        workers_(workers),
        metrics_(metrics),
        failure_watch_(options.precision.failure_watch) {}

  // Loads the stored policy. Must be called before any other method.
  void Load();

  PrecisionGate gate() const;
  training::v1::PrecisionPolicy policy() const;
  // Sets the policy. It is durable before it takes effect.
  void SetPolicy(const training::v1::SetPrecisionPolicyRequest& request, const Caller& caller,
                 const Callback<training::v1::SetPrecisionPolicyResponse>& callback);

  // Sets what follows if too many jobs fail, and closes or opens the gate if they already have.
  void SetFailureWatch(FailureWatchAction action);
  void OnJobEnded(const training::v1::Job& ended);
  // Requests that the job's worker continue in FP32.
  void Leave(const std::string& job_id);

 private:
  void PublishPolicy(const training::v1::PrecisionPolicy& policy);
  void ApplyPolicy(const training::v1::SetPrecisionPolicyRequest& request,
                   const training::v1::PrecisionPolicy& policy,
                   const Callback<training::v1::SetPrecisionPolicyResponse>& callback);

  const JobManagerOptions& options_;
  JobTable& table_;
  Writer& writer_;
  const Clock& clock_;
  JobStops& stops_;
  Workers* const workers_;
  Metrics* const metrics_;
  FailureWatch failure_watch_;
  mutable absl::Mutex policy_mutex_;
  training::v1::PrecisionPolicy policy_ ABSL_GUARDED_BY(policy_mutex_);
  PrecisionGate gate_ ABSL_GUARDED_BY(policy_mutex_);
};

}  // namespace genesis
