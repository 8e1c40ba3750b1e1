#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_control.h"

namespace genesis {

// The control flags that a run obeys after a step: its caller's requests and the time limit. A
// single process uses its own flags. Several ranks combine the flags that each sent with the last
// step, and use the mean step time, so that all stop after the same step and judge it alike.
//
// Owner: the run. Threads: one. Failure: RunFailure if the ranks cannot continue together.
class RunAgreement {
 public:
  RunAgreement(RunControl& control, RankGroup& ranks) : control_(control), ranks_(ranks) {}

  // Throws RunFailure if this rank resumes from a step other than that of rank 0.
  void Begin(int64_t step) const;
  // Sets this rank's flags, which the next step sends. `seconds` is the time of the previous step,
  // `plateau` is set if the reported metric has reached another plateau, and `news` if rank 0 has
  // news of the data that the job follows. Call before each step.
  void Tell(bool time_is_up, double seconds, bool plateau, bool news);
  // Exchanges the flags without a step. Call while the ranks wait for data.
  void Exchange(bool time_is_up);

  bool stop() const { return ranks_.alone() ? control_.stop_requested() : ranks_.agreed().stop; }
  // Returns whether a checkpoint was requested: true once for each request.
  bool TakeCheckpoint();
  // Returns the reason to continue in FP32, once for each request.
  std::optional<std::string> TakeFp32Request();
  // Returns whether the metric has reached another plateau: once for each step.
  bool TakePlateau(bool own);
  bool news() const { return ranks_.agreed().news; }
  // Returns why the job is complete before its last step, or "".
  std::string EarlyEnd() const;
  bool TimeIsUp(bool own) const { return ranks_.alone() ? own : ranks_.agreed().time_is_up; }
  double StepSeconds(double own) const { return ranks_.alone() ? own : ranks_.agreed().seconds; }

 private:
  RunControl& control_;
  RankGroup& ranks_;
  bool agreed_checkpoint_ = false;  // Set until the agreed checkpoint flag is read.
  bool agreed_fp32_ = false;        // Set until the agreed FP32 flag is read.
  bool agreed_plateau_ = false;     // Set until the agreed plateau flag is read.
  std::string fp32_reason_;         // Reason of this rank's own FP32 request, or empty.
};

}  // namespace genesis
