#pragma once

#include <string>

#include "absl/time/time.h"

namespace genesis {

// The backoff between failed worker starts: 1 s, doubled each time, at most 30 s.
//
// Owner: WorkerTable.
class StartBackoff {
 public:
  // Records a failed start. Returns the pause before the next attempt.
  absl::Duration NoteFailure(const std::string& problem, absl::Time now);
  // Called when a worker has attached. A pause that is running continues.
  void NoteSuccess();

  bool MayStart(absl::Time now) const { return now >= next_try_; }
  // Returns why the newest attempt failed; empty after a success.
  const std::string& problem() const { return problem_; }

 private:
  int failures_ = 0;  // Consecutive failures.
  absl::Time next_try_ = absl::InfinitePast();
  std::string problem_;
};

}  // namespace genesis
