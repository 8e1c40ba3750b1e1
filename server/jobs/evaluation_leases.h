#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/base/callback.h"
#include "server/ledger/job_view.h"

namespace genesis {

// The checkpoints that callers evaluate at the moment, each leased to one of them.
//
// Owner: JobManager. Threads: any. Failure: leases are lost with the process, and a checkpoint may
// then be evaluated twice.
class EvaluationLeases {
 public:
  EvaluationLeases(const JobView* view, const Clock& clock) : view_(*view), clock_(clock) {}

  // Leases the newest checkpoint of the job without a value of evaluation.metric and without a
  // lease. If there is none, the response has no checkpoint, and the time at which the first lease
  // of a checkpoint without a value expires. FAILED_PRECONDITION if the job follows no reported
  // metric; the store's status.
  absl::StatusOr<training::v1::LeaseEvaluationResponse> Lease(const training::v1::Job& job,
                                                              absl::Duration length);
  // Returns a function that leases a checkpoint as soon as there is one, passes the lease to
  // `callback`, and returns true. Call it until it has returned true: after events, and once a
  // second, because no event reports that a lease has expired. It passes a response without a
  // checkpoint on if the job has ended and no checkpoint is leased, or if `last` is true. NOT_FOUND
  // if the job is gone.
  std::function<bool(bool last)> WaitFor(
      const std::string& job_id, absl::Duration length,
      const Callback<training::v1::LeaseEvaluationResponse>& callback);

 private:
  const JobView& view_;
  const Clock& clock_;
  absl::Mutex mutex_;
  struct Span {
    absl::Time begin, end;
  };
  // The leases, keyed by job ID and step, because checkpoints of one step share their values.
  std::map<std::pair<std::string, int64_t>, Span> leases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
