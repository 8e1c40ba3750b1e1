#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "genesis/training/v1/precision.pb.h"
#include "trainer/precision/curve_evidence.h"
#include "trainer/precision/loss_curve.h"
#include "trainer/precision/pair_evidence.h"

namespace genesis {

// The finding of a watchdog rule that fired.
struct WatchdogFinding {
  std::string rule;  // "overflow", "divergence", "overflow_warning" or "slowdown".
  bool enforce = false;
  std::string message;  // One sentence with the observed and accepted values.
};

// The triggers of the rollback plan that consider more than one step, for a job in reduced
// precision (job.proto, WatchdogSpec). Each rule fires once when its value crosses the threshold,
// and again only after the value has been well on the good side (half the threshold).
//
//   overflow    skipped steps of the last `window_steps` / window_steps > threshold
//   divergence  the loss is significantly above FP32's, by PairEvidence (same batches and weights
//               in both formats) or CurveEvidence (the baseline's curve). A lower loss never fires.
//               The plain value of the window, (mean loss - mean baseline) / mean baseline, only
//               triggers closer checks and is reported
//   slowdown    FP32's step time / step time < threshold, measured in turn once the median step
//               time and processor time over the window are suspicious (a step that only waits is
//               delayed by other programs)
//
// Skipped steps before the first applied one do not count (at most 24), because the scale is still
// adapting.
//
// Owner: the run. Threads: one.
class Watchdog {
 public:
  // `spec` has every default filled in.
  Watchdog(const training::v1::WatchdogSpec& spec, Baseline baseline);

  struct Step {
    int64_t step = 0;
    double loss = 0;
    bool skipped = false;
    double seconds = 0;
    double processor_seconds = 0;  // Sum over all threads; 0 if it does not describe the step.
  };
  std::vector<WatchdogFinding> Observe(const Step& step);

  // Returns whether the last observed step needs a pair of losses in both formats, for AddPair.
  bool WantsPair() const;
  // `step` is the pair's step, which may be before the last observed one.
  std::optional<WatchdogFinding> AddPair(int64_t step, const PairedLoss& pair);
  // Returns whether steps of both formats should be timed in turn, for AddTimes (seconds).
  bool WantsTimes() const { return wants_times_; }
  bool IsSlow(double fp32_seconds, double reduced_seconds) const {
    return fp32_seconds < slowdown_.spec.threshold() * reduced_seconds;
  }
  std::optional<WatchdogFinding> AddTimes(double fp32_seconds, double reduced_seconds);
  // `loss` is the held-out loss after a step, measured in FP32.
  void AddHeldOut(int64_t step, double loss);

  // Clears all observations. Call after a change of precision.
  void Reset();
  bool has_baseline() const { return !baseline_.empty(); }
  // Sets, for a job without a baseline, the loss and the times of a few FP32 steps before the run.
  // No step of the run is compared with them because no FP32 run continued from them.
  void SetCalibration(const training::v1::LossCurve& fp32);

  // Returns whether the loss is more than half way to the threshold of the divergence rule, or
  // paired losses show an excess that is being checked or has not been refuted.
  bool suspicious() const { return elevated() || pairs_.suspicious(); }
  // Mean of the baseline over the window that ended at the newest step; 0 if the baseline has no
  // such step.
  double baseline_loss() const { return baseline_loss_; }
  // (mean loss / mean baseline) - 1 over that window; unset if it is not full or lacks a baseline.
  std::optional<double> divergence() const;
  // FP32's median step time divided by the median over the newest full window of the slowdown rule;
  // unset if either is missing.
  std::optional<double> speed() const { return speed_; }

 private:
  // Values of the last steps with their sum.
  struct Window {
    explicit Window(size_t window_steps) : size(window_steps) {}
    const size_t size;
    std::deque<double> values;
    double sum = 0;
    void Add(double value);
    void Clear();
    bool full() const { return values.size() == size; }
    double mean() const { return sum / static_cast<double>(values.size()); }
  };
  struct Rule {
    Rule(const char* rule_name, training::v1::WatchdogRule rule_spec)
        : name(rule_name), spec(std::move(rule_spec)) {}
    const char* name;
    training::v1::WatchdogRule spec;
    bool firing = false;
  };

  // Returns whether the rule fires now. `good` rearms it.
  static bool Fires(Rule& rule, bool bad, bool good);
  static WatchdogFinding Finding(const Rule& rule, std::string message);
  void JudgeOverflow(Rule& rule, Window& window, bool skipped,
                     std::vector<WatchdogFinding>& findings);
  void JudgeDivergence(const Step& step, std::vector<WatchdogFinding>& findings);
  void WatchSpeed(const Step& step);
  bool elevated() const { return divergence_now_ > divergence_.spec.threshold() / 2; }
  // Returns "the loss is 0.012 where FP32 had 0.01, 20.0 % more over the last 50 steps; ", or "" if
  // unknown.
  std::string Figures() const;
  // Returns the logarithm of a step's loss divided by the baseline's.
  double Difference(const Step& step) const;
  // Returns whether a held-out loss in the second half of these steps was as good as FP32's.
  bool HeldOutIsFine(int64_t step, int64_t steps) const;

  Baseline baseline_;
  Rule overflow_, divergence_, overflow_warning_, slowdown_;
  Window overflows_, warned_overflows_, losses_, baselines_, seconds_, processor_seconds_;
  PairEvidence pairs_;
  CurveEvidence curve_;
  double fp32_step_seconds_ = 0;
  double fp32_processor_seconds_ = 0;
  std::optional<double> speed_;
  double baseline_loss_ = 0;
  double divergence_now_ = 0;
  int64_t step_ = 0;  // Last observed step.
  int64_t held_out_step_ = -1;
  double held_out_excess_ = 0;  // Logarithm of the newest held-out loss / FP32's.
  bool wants_times_ = false;
  int64_t next_times_ = 0;  // First step at which times may be measured again.
  int64_t times_pause_ = 0;
  int64_t skipped_before_first_ = 0;
  bool applied_one_ = false;
};

}  // namespace genesis
