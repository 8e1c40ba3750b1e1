#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/steady_time.h"
#include "curves/curve_file.h"

namespace genesis {

// Limits on the files of one job. Beyond them, the older half of the files of a level is combined
// into one file of the next level. Files of the last level are combined into one of the same level.
struct CurveLimits {
  int64_t steps = int64_t{1} << 18;   // At level 0: 8 MiB.
  int64_t points = int64_t{1} << 14;  // At each higher level: 2.3 MiB.
  int64_t steps_of_file = int64_t{1} << 16;
  int files = 32;  // At each level.
};

// A `CurveWriter` appends the steps of one attempt to the files of its job. Add only stores the
// step in memory; a thread writes about once a second.
//
// Owner: the worker of rank 0. Threads: one for Add, any for Flush. Failure: steps that cannot be
// written are dropped, because training must go on, and so are steps while too many are unwritten.
// `on_fault` receives the first status, on the thread that writes.
class CurveWriter {
 public:
  // `folder` is created with its first file. `claim` is StartJob.claim of the attempt and larger
  // than the claim of any earlier attempt.
  CurveWriter(std::string folder, int64_t claim, std::function<void(const absl::Status&)> on_fault,
              CurveLimits limits = {});
  // Writes the remaining steps.
  ~CurveWriter();

  // Adds a step. It replaces all steps with the same or a larger number that were added before.
  void Add(const CurveStep& step);
  // Writes the added steps. Blocks on the disk. Called for each checkpoint, because a run that ends
  // without notice resumes from the checkpoint.
  void Flush();

 private:
  void Loop();
  // Writes each run of consecutive steps as a block.
  void Write(const std::vector<CurveStep>& steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  absl::Status WriteBlock(const std::string& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  // Opens the next file when the current one is full.
  absl::Status OpenNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  // Combines older files of the level if there are too many.
  absl::Status ThinLevel(int level);

  const std::string folder_;
  const int64_t claim_;
  const std::function<void(const absl::Status&)> on_fault_;
  const CurveLimits limits_;
  absl::Mutex writing_;  // Held while steps are written, and taken before mutex_.
  int64_t number_ ABSL_GUARDED_BY(writing_) = 0;  // Number of the next file.
  int file_ ABSL_GUARDED_BY(writing_) = -1;
  int64_t steps_in_file_ ABSL_GUARDED_BY(writing_) = 0;
  bool told_ ABSL_GUARDED_BY(writing_) = false;

  absl::Mutex mutex_;
  SteadyCondition changed_;
  std::vector<CurveStep> pending_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace genesis
