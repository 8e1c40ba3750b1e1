#pragma once

#include <string>

#include "absl/time/time.h"

namespace genesis {

// The pauses between tries to start a worker, while none succeeds: 1 s, twice as long each time, at
// most 30 s.
//
// Owner: WorkerTable.
class StartBackoff {
 public:
  // Returns the pause until the next try.
  absl::Duration NoteFailure(const std::string& problem, absl::Time now);
  // A worker has attached. A pause that runs runs on.
  void NoteSuccess();

  bool MayStart(absl::Time now) const { return now >= next_try_; }
  // Why the newest try failed; empty after a success.
  const std::string& problem() const { return problem_; }

 private:
  int failures_ = 0;  // In a row.
  absl::Time next_try_ = absl::InfinitePast();
  std::string problem_;
};

}  // namespace genesis
