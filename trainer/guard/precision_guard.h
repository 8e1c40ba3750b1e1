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
  bool rewind = false;  // To the last good state; else the weights of now are good.
  std::string trigger;
  std::string reason;
};

// How long a step took, and how long processors worked at it; 0 where that is not known.
struct StepCost {
  double seconds = 0;
  double processor_seconds = 0;
};

// Watches every finished step of a run: finds out why one was not finite, asks the watchdog, and
// decides when precision changes; then makes the change. A step that was not finite changed no
// weights, so most changes lose nothing; only a loss that ran away takes the run back to its last
// good state.
//
// Owner: the run. Threads: one. Failure: RunFailure where nothing is left to fall back to.
class PrecisionGuard {
 public:
  // Its baseline is the file that the job names, or what the daemon gave, which may be nothing.
  PrecisionGuard(const training::v1::StartJob& start, TrainingSession& session,
                 RunObserver& observer);

  // Before the first step: takes `mode`, and where `resumed` is a state whose job had fallen back
  // from that mode, what it had fallen back to.
  void Begin(training::v1::PrecisionMode mode, const TrainingState* resumed);
  training::v1::PrecisionMode mode() const { return policy_->mode(); }
  const PolicyState& policy() const { return policy_->state(); }
  double baseline_loss() const { return watchdog_.baseline_loss(); }
  // How far the loss is from FP32's (Watchdog::divergence); unset in FP32.
  std::optional<double> divergence() const {
    return reduced() ? watchdog_.divergence() : std::nullopt;
  }
  // How fast its steps are in units of FP32's (Watchdog::speed); unset in FP32.
  std::optional<double> speed() const { return reduced() ? watchdog_.speed() : std::nullopt; }
  bool has_baseline() const { return watchdog_.has_baseline(); }
  void SetCalibration(const training::v1::LossCurve& fp32) { watchdog_.SetCalibration(fp32); }

  // FP32 is not left any more: no promotion.
  void ForbidReducedPrecision() { policy_->ForbidPromotion(); }

  // Looks at the figures of the step that was read last.
  std::optional<PrecisionDecision> Judge(int64_t step, const StepMetrics& metrics,
                                         const StepCost& cost);

  // Whether steps in both formats should be timed now. Then JudgeSpeed, which requires that every
  // step has been read; `ranks` is null where the job is trained by this process alone.
  bool WantsTimes() const { return reduced() && watchdog_.WantsTimes(); }
  std::optional<PrecisionDecision> JudgeSpeed(int64_t step, RankGroup* ranks);
  // The held-out loss after a step.
  void NoteHeldOut(int64_t step, double loss) { watchdog_.AddHeldOut(step, loss); }

  // A state to go back to, unless the loss is already on its way off; shared with whoever writes it
  // to a file. FP32 is what a run falls back to: nothing leads back from there, and none is kept.
  void KeepGoodState(std::shared_ptr<const TrainingState> state) {
    if (!reduced()) {
      good_ = nullptr;
    } else if (good_ == nullptr || !watchdog_.suspicious()) {
      good_ = std::move(state);
    }
  }
  // Whether one should be taken now, besides those of checkpoints.
  bool WantsGoodState(int64_t step) const;

  // Makes the change. Returns the step to go on from: `step`, or that of the last good state, whose
  // position is then put into `position`. Requires that every step has been read.
  int64_t Apply(const PrecisionDecision& decision, int64_t step, RunPosition& position);

 private:
  bool reduced() const { return mode() != training::v1::PRECISION_MODE_FP32; }
  // Notes whether a step was not finite.
  void NoteNonFinite(bool non_finite);
  // More steps in the window of the rule non_finite than its threshold.
  bool TooManyNonFinite() const;
  std::optional<PrecisionDecision> JudgeNonFinite(int64_t step, const StepMetrics& metrics);
  std::optional<PrecisionDecision> JudgeFloor(int64_t step, const StepMetrics& metrics);
  std::optional<PrecisionDecision> JudgeWatched(int64_t step, const StepMetrics& metrics,
                                                const StepCost& cost);
  // Reports what was found; what to do where that is enforced.
  std::optional<PrecisionDecision> Take(int64_t step, const WatchdogFinding& finding,
                                        const NonFiniteDiagnosis& found);
  std::optional<PrecisionDecision> FallBack(const std::string& trigger, bool rewind,
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
  std::optional<PairedLossReading> pair_;  // Of a step before, not yet read.
  int64_t pair_step_ = 0;
  std::deque<bool> non_finite_;  // The newest steps, as many as the rule looks at.
  int64_t non_finite_in_row_ = 0;
  bool floor_reported_ = false;
};

}  // namespace genesis
