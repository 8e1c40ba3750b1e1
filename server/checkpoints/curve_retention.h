#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

namespace genesis {

// Removes the curves of a job (curves/README.md). Blocks on the disk.
void RemoveCurves(const std::string& checkpoint_dir, const std::string& job_id);

// The state of a job, as far as it matters to its curves.
enum class CurveOwner { kUnknown, kEnded, kOpen };

// Limits the curves of all jobs to `max_bytes`. Above it, combines the steps of the curves that
// were written least recently, level by level, and then removes these curves, but never those of
// open jobs. Removes curves without a job seven days after the last write, because a restored store
// may lack their job. Blocks on the disk.
void BoundCurves(const std::string& checkpoint_dir, int64_t max_bytes, absl::Time now,
                 const std::function<CurveOwner(const std::string& job_id)>& owner);

// A thread that runs BoundCurves at the start and every ten minutes.
//
// Owner: the daemon. Failure: files that cannot be removed stay.
class CurveRetention {
 public:
  CurveRetention(std::string checkpoint_dir, int64_t max_bytes,
                 std::function<CurveOwner(const std::string& job_id)> owner);
  ~CurveRetention();

 private:
  void Loop();

  const std::string checkpoint_dir_;
  const int64_t max_bytes_;
  const std::function<CurveOwner(const std::string&)> owner_;
  absl::Mutex mutex_;
  SteadyCondition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace genesis
