#include "server/jobs/evaluation_leases.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/timestamp.h"
#include "config/job/final_state.h"
#include "server/jobs/job_errors.h"

namespace genesis {
namespace {

using training::v1::LeaseEvaluationResponse;

// Bounds the work of a call.
constexpr int64_t kMaxLooks = 100;

}  // namespace

absl::StatusOr<LeaseEvaluationResponse> EvaluationLeases::Lease(const training::v1::Job& job,
                                                                absl::Duration length) {
  const std::string& metric = job.spec().evaluation().metric();
  if (metric.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.id(),
                     "\" follows no reported metric; accepted: a job with evaluation.metric"));
  }
  absl::StatusOr<std::vector<StoredCheckpoint>> checkpoints =
      view_.Checkpoints(job.id(), 0, kMaxLooks);
  if (!checkpoints.ok()) return checkpoints.status();
  LeaseEvaluationResponse response;
  response.set_metric(metric);
  const absl::Time now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  std::erase_if(ends_, [now](const auto& each) { return each.second <= now; });
  for (StoredCheckpoint& each : *checkpoints) {
    if (each.checkpoint.reported_metrics().contains(metric)) continue;
    const absl::Time end = now + length;
    if (!ends_.try_emplace({job.id(), each.checkpoint.step()}, end).second) continue;
    *response.mutable_checkpoint() = std::move(each.checkpoint);
    *response.mutable_expire_time() = ToTimestamp(end);
    break;
  }
  return response;
}

std::function<bool(bool last)> EvaluationLeases::WaitFor(
    const std::string& job_id, absl::Duration length,
    const Callback<LeaseEvaluationResponse>& callback) {
  return [this, job_id, length, callback, seen = std::optional<std::string>()](bool last) mutable {
    const auto now = view_.Snapshot(job_id);
    if (!now.ok() || *now == nullptr) {
      callback(now.ok() ? NoSuchJob(job_id) : now.status());
      return true;
    }
    const training::v1::Job& job = (*now)->job;
    last = last || IsFinal(job.state());
    // Reads the checkpoints only if there is a new one.
    if (!last && seen == job.latest_checkpoint().id()) return false;
    seen = job.latest_checkpoint().id();
    const absl::StatusOr<LeaseEvaluationResponse> lease = Lease(job, length);
    if (lease.ok() && !lease->has_checkpoint() && !last) return false;
    callback(lease);
    return true;
  };
}

}  // namespace genesis
