#include "server/auth/request_rate.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "google/rpc/error_details.pb.h"

namespace genesis {
namespace {

constexpr double kSeconds = 10;
constexpr size_t kMaxBuckets = 10000;

}  // namespace

void RequestRate::Set(int per_second) {
  absl::MutexLock lock(&mutex_);
  per_second_ = per_second;
  buckets_.clear();
}

absl::Status RequestRate::Take(const std::string& caller, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (per_second_ == 0) return absl::OkStatus();
  const double most = kSeconds * per_second_;
  // All callers get a full bucket if there are too many to keep.
  if (buckets_.size() >= kMaxBuckets && !buckets_.contains(caller)) buckets_.clear();
  const auto [found, is_new] = buckets_.try_emplace(caller, Bucket{most, now});
  Bucket& bucket = found->second;
  bucket.calls =
      std::min(most, bucket.calls + per_second_ * absl::ToDoubleSeconds(now - bucket.at));
  bucket.at = now;
  if (bucket.calls < 1) {
    absl::Status refused = absl::ResourceExhaustedError(
        absl::StrCat(QuoteValue(caller), " makes more than ", per_second_,
                     " calls a second (quotas.requests_per_second); wait a second"));
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1);
    refused.SetPayload(kRetryInfoType, absl::Cord(retry.SerializeAsString()));
    return refused;
  }
  bucket.calls -= 1;
  return absl::OkStatus();
}

}  // namespace genesis
