#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace genesis {

// Type of a status payload: a google.rpc.RetryInfo.
inline constexpr char kRetryInfoType[] = "type.googleapis.com/google.rpc.RetryInfo";

// The rate at which each caller may begin calls: a token bucket of ten seconds.
//
// Owner: ApiGate. Threads: any. Failure: RESOURCE_EXHAUSTED with RetryInfo.
class RequestRate {
 public:
  // Sets the calls per second; 0 for no limit.
  void Set(int per_second);
  // Counts one call of the caller at `now` (SteadyNow). RESOURCE_EXHAUSTED above the rate.
  absl::Status Take(const std::string& caller, absl::Time now);

 private:
  struct Bucket {
    double calls = 0;
    absl::Time at;
  };

  absl::Mutex mutex_;
  int per_second_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
