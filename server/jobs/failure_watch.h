#pragma once

#include <deque>
#include <string>

#include "config/precision/precision.h"

namespace genesis {

// The P0 trigger of the rollback plan: more than half of the newest jobs in reduced precision
// failed. It looks at the newest 10 jobs, once there are 4. A job that was cancelled, or that
// failed because of its specification or its data, does not count.
//
// Owner: JobManager. Threads: the writer only. Its state is lost when the daemon exits.
class FailureWatch {
 public:
  explicit FailureWatch(FailureWatchAction action) : action_(action) {}

  // Adds a finished job that used reduced precision. Returns true if the trigger fires now.
  bool Add(bool failed);

  // Keeps the failures seen so far: if the trigger has fired, closes_gate() becomes
  // true with a change from advise to enforce.
  void SetAction(FailureWatchAction action) { action_ = action; }

  // Returns true if new attempts must start in FP32.
  bool closes_gate() const { return fired_ && action_ == FailureWatchAction::kEnforce; }
  // For example: "6 of the last 10 jobs in reduced precision failed; accepted: at most half".
  const std::string& reason() const { return reason_; }

 private:
  int failures() const;

  FailureWatchAction action_;
  std::deque<bool> failed_;
  bool fired_ = false;
  std::string reason_;
};

}  // namespace genesis
