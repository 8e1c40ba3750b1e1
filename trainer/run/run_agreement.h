#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_control.h"

namespace genesis {

// The control flags that a run follows at the end of a step: requests of its caller, and the clock.
// A single process uses its own. Several ranks use what all of them requested with the last step
// and its mean time, so that they stop after the same step and judge it alike.
//
// Owner: the run. Threads: one. Failure: RunFailure where the ranks cannot go on together.
class RunAgreement {
 public:
  // `ranks` is null where the process trains alone.
  RunAgreement(RunControl& control, RankGroup* ranks) : control_(control), ranks_(ranks) {}

  int64_t rank_count() const { return ranks_ != nullptr ? ranks_->size() : 1; }

  // Fails unless every rank goes on from the same step.
  void Begin(int64_t step) const;
  // Before each step. `seconds` is the time of the one before.
  void Tell(bool time_is_up, double seconds);

  bool stop() const {
    return ranks_ != nullptr ? ranks_->agreed().stop : control_.stop_requested();
  }
  // True once for each request.
  bool TakeCheckpoint();
  // Why to go on in FP32; once for each request.
  std::optional<std::string> TakeFp32Request();
  bool TimeIsUp(bool own) const { return ranks_ != nullptr ? ranks_->agreed().time_is_up : own; }
  double StepSeconds(double own) const {
    return ranks_ != nullptr ? ranks_->agreed().seconds : own;
  }

 private:
  RunControl& control_;
  RankGroup* const ranks_;
  bool agreed_checkpoint_ = false;  // And not yet taken.
  bool agreed_fp32_ = false;        // The same.
  std::string fp32_reason_;         // Requested by this rank; empty where it is another's.
};

}  // namespace genesis
