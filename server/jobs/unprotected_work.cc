#include "server/jobs/unprotected_work.h"

#include <algorithm>
#include <optional>

#include "base/timestamp.h"

namespace genesis {

void UnprotectedWork::Begin(const std::string& job_id, absl::Time now) {
  since_[job_id] = now;
  Show();
}

void UnprotectedWork::Adopt(const training::v1::Job& job) {
  // A job that is still STARTING reports later that it has started.
  if (job.state() == training::v1::JOB_STATE_STARTING) return;
  const bool protects = job.latest_checkpoint().has_create_time();
  since_[job.id()] =
      FromTimestamp(protects ? job.latest_checkpoint().create_time() : job.start_time());
  Show();
}

void UnprotectedWork::Protect(const std::string& job_id, absl::Time snapshot) {
  const auto found = since_.find(job_id);
  if (found == since_.end()) return;
  found->second = std::max(found->second, snapshot);
  Show();
}

void UnprotectedWork::End(const std::string& job_id) {
  if (since_.erase(job_id) > 0) Show();
}

void UnprotectedWork::Show() const {
  std::optional<double> oldest;
  for (const auto& [job_id, since] : since_) {
    const double seconds = absl::ToDoubleSeconds(since - absl::UnixEpoch());
    oldest = std::min(oldest.value_or(seconds), seconds);
  }
  metrics_->SetUnprotectedSince(oldest);
}

}  // namespace genesis
