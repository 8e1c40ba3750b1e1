#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/guard/non_finite_diagnosis.h"
#include "trainer/guard/paired_loss.h"
#include "trainer/precision/policy.h"
#include "trainer/precision/watchdog.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/step/training_session.h"

namespace genesis {

// A change of precision that is due.
struct PrecisionDecision {
  training::v1::PrecisionMode to = training::v1::PRECISION_MODE_FP32;
  bool rewind = false;  // Return to the last good state; otherwise keep the current weights.
  std::string trigger;
  std::string reason;
};

// Duration and processor time of a step; 0 if unknown.
struct StepCost {
  double seconds = 0;
  double processor_seconds = 0;
};

// A `PrecisionGuard` checks every finished step of a run: it diagnoses non-finite steps, runs the
// watchdog, and decides on and applies changes of precision. A step that was not finite changed no
// weights, so most changes lose nothing; divergence and bad weights rewind to the last good state.
//
// Owner: the run. Threads: one. Failure: RunFailure without a fallback, or for bad data.
class PrecisionGuard {
 public:
  // The baseline is the file that the job names, or the daemon's curve, which may be empty.
  PrecisionGuard(const training::v1::StartJob& start, TrainingSession& session,
                 RunObserver& observer);

  // Call before the first step. Sets `mode`. If `resumed` is the state of a job that had fallen
  // back from that mode, sets the mode that it had fallen back to.
  void Begin(training::v1::PrecisionMode mode, const TrainingState* resumed);
  training::v1::PrecisionMode mode() const { return policy_->mode(); }
  const PolicyState& policy() const { return policy_->state(); }
  double baseline_loss() const { return watchdog_.baseline_loss(); }
  // Relative difference of the loss from FP32's (Watchdog::divergence); unset in FP32.
  std::optional<double> divergence() const {
    return reduced() ? watchdog_.divergence() : std::nullopt;
  }
  // Speed of the steps relative to FP32 (Watchdog::speed); unset in FP32.
  std::optional<double> speed() const { return reduced() ? watchdog_.speed() : std::nullopt; }
  bool has_baseline() const { return watchdog_.has_baseline(); }
  void SetCalibration(const training::v1::LossCurve& fp32) { watchdog_.SetCalibration(fp32); }

  // Disables promotions permanently: a job in FP32 stays in FP32.
  void ForbidReducedPrecision() { policy_->ForbidPromotion(); }

  // Judges the metrics of the step that was last read.
  std::optional<PrecisionDecision> Judge(int64_t step, const StepMetrics& metrics,
                                         const StepCost& cost);

  // Returns whether steps in both formats should be timed now. If so, call JudgeSpeed, which
  // requires that every step has been read.
  bool WantsTimes() const { return reduced() && watchdog_.WantsTimes(); }
  std::optional<PrecisionDecision> JudgeSpeed(int64_t step, RankGroup& ranks);
  // `loss` is the held-out loss after a step.
  void NoteHeldOut(int64_t step, double loss) { watchdog_.AddHeldOut(step, loss); }

  // Keeps a state for a rewind. If the loss is already suspicious, an earlier state stays instead.
  // The checkpoint writer shares the state. In FP32, which has no fallback, no state is kept.
  void KeepGoodState(std::shared_ptr<const TrainingState> state) {
    if (!reduced()) {
      good_ = nullptr;
    } else if (good_ == nullptr || !watchdog_.suspicious()) {
      good_ = std::move(state);
    }
  }
  // Returns whether to keep a state now, in addition to the states of checkpoints.
  bool WantsGoodState(int64_t step) const;

  // A change of precision that the session has made.
  struct Change {
    training::v1::PrecisionChange record;
    // The last good state if the session continues from it; null if it continues from where it is.
    std::shared_ptr<const TrainingState> resumed;
  };
  // Applies the decision after `step`. Requires that every step has been read.
  Change Apply(const PrecisionDecision& decision, int64_t step);
  // Logs and reports a change that was applied.
  void Announce(const training::v1::PrecisionChange& change);

 private:
  bool reduced() const { return mode() != training::v1::PRECISION_MODE_FP32; }
  // Records whether a step was not finite.
  void NoteNonFinite(bool non_finite);
  // Returns whether the window of the rule non_finite has more non-finite steps than allowed.
  bool TooManyNonFinite() const;
  std::optional<PrecisionDecision> JudgeNonFinite(int64_t step, const StepMetrics& metrics);
  PrecisionDecision JudgeFloor(int64_t step, const StepMetrics& metrics);
  std::optional<PrecisionDecision> JudgeWatched(int64_t step, const StepMetrics& metrics,
                                                const StepCost& cost);
  // Reports the finding. Returns the action if it is enforced.
  std::optional<PrecisionDecision> Take(int64_t step, const WatchdogFinding& finding,
                                        const NonFiniteDiagnosis& found);
  PrecisionDecision FallBack(const std::string& trigger, bool rewind,
                             const std::string& reason) const;
  void Report(int64_t step, const std::string& rule, const std::string& message,
              const NonFiniteDiagnosis& found);
  [[noreturn]] void Fail(training::v1::FailureCause cause, const std::string& what) const;

  const training::v1::StartJob& start_;
  const training::v1::PrecisionSpec& spec_;
  TrainingSession& session_;
  RunObserver& observer_;
  Watchdog watchdog_;
  std::optional<PrecisionPolicy> policy_;
  std::shared_ptr<const TrainingState> good_;
  std::optional<PairedLossReading> pair_;  // Pair of an earlier step, not yet read.
  int64_t pair_step_ = 0;
  std::deque<bool> non_finite_;  // Per step of the rule's window: whether it was not finite.
  int64_t non_finite_in_row_ = 0;
};

}  // namespace genesis
