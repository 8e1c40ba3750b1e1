#include "server/jobs/evaluation_leases.h"

#include <algorithm>
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

// Maximum number of checkpoints that one query reads.
constexpr int64_t kPage = 100;

}  // namespace

absl::StatusOr<LeaseEvaluationResponse> EvaluationLeases::Lease(const training::v1::Job& job,
                                                                absl::Duration length) {
  const std::string& metric = job.spec().evaluation().metric();
  if (metric.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.id(),
                     "\" follows no reported metric; accepted: a job with evaluation.metric"));
  }
  LeaseEvaluationResponse response;
  response.set_metric(metric);
  const absl::Time now = clock_.Now();
  absl::Time first_end = absl::InfiniteFuture();
  for (int64_t place = 0;;) {
    absl::StatusOr<std::vector<StoredCheckpoint>> page = view_.Checkpoints(job.id(), place, kPage);
    if (!page.ok()) return page.status();
    const absl::MutexLock lock(&mutex_);
    std::erase_if(leases_, [&](const auto& each) {
      const auto& [of, lease] = each;
      // A deleted job may have had the same ID.
      const bool earlier_job =
          of.first == job.id() && lease.begin < FromTimestamp(job.create_time());
      return lease.end <= now || earlier_job;
    });
    for (StoredCheckpoint& each : *page) {
      if (each.checkpoint.reported_metrics().contains(metric)) continue;
      const auto [lease, is_new] = leases_.try_emplace({job.id(), each.checkpoint.step()},
                                                       Span{.begin = now, .end = now + length});
      first_end = std::min(first_end, lease->second.end);
      if (!is_new) continue;
      *response.mutable_checkpoint() = std::move(each.checkpoint);
      *response.mutable_expire_time() = ToTimestamp(lease->second.end);
      return response;
    }
    if (page->size() < kPage) break;
    place = page->back().place;
  }
  if (first_end < absl::InfiniteFuture()) *response.mutable_expire_time() = ToTimestamp(first_end);
  return response;
}

std::function<bool(bool last)> EvaluationLeases::WaitFor(
    const std::string& job_id, absl::Duration length,
    const Callback<LeaseEvaluationResponse>& callback) {
  return [this, job_id, length, callback, seen = std::optional<std::string>(),
          expiry = absl::InfiniteFuture()](bool last) mutable {
    const auto now = view_.Snapshot(job_id);
    if (!now.ok() || *now == nullptr) {
      callback(now.ok() ? NoSuchJob(job_id) : now.status());
      return true;
    }
    const training::v1::Job& job = (*now)->job;
    const bool ended = IsFinal(job.state());
    // Reads the checkpoints only if there is a new one, or a lease has expired.
    const bool may_differ = seen != job.latest_checkpoint().id() || clock_.Now() >= expiry;
    if (!last && !ended && !may_differ) return false;
    seen = job.latest_checkpoint().id();
    const absl::StatusOr<LeaseEvaluationResponse> lease = Lease(job, length);
    const bool has_expiry = lease.ok() && lease->has_expire_time();
    expiry = has_expiry ? FromTimestamp(lease->expire_time()) : absl::InfiniteFuture();
    const bool may_come = lease.ok() && (!ended || has_expiry);
    if (may_come && !lease->has_checkpoint() && !last) return false;
    callback(lease);
    return true;
  };
}

}  // namespace genesis
