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

// The finding of a rule of the watchdog when it fires.
struct WatchdogFinding {
  std::string rule;  // "overflow", "divergence", "overflow_warning" or "slowdown".
  bool enforce = false;
  std::string message;  // One sentence with the figures.
};

// The triggers of the rollback plan that look at more than one step, for a job in reduced
// precision (job.proto, WatchdogSpec). Each rule fires once when its threshold is crossed, and
// again only after the figure has been well on the good side (half the threshold).
//
//   overflow    skipped steps of the last `window_steps` / window_steps > threshold
//   divergence  the loss is above FP32's, by evidence: of the same batches and weights in both
//               formats (PairEvidence), or of the baseline's curve (CurveEvidence); only upwards,
//               for a lower loss needs no rescue. The plain figure of the window, (mean loss - mean
//               baseline) / mean baseline, tells where to look closer, and people how much it is
//   slowdown    FP32's step time / step time < threshold, both measured in turn, once the median
//               step time over the window gives reason to, and the processor time as well: a step
//               that only waits is held up by other programs
//
// Skipped steps before the first applied one do not count (at most 24 of them): that is the scale
// finding its place.
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
    double processor_seconds = 0;  // Of all threads; 0 where that says nothing of the step.
  };
  std::vector<WatchdogFinding> Observe(const Step& step);

  // Whether the step that was observed last is to be lost once more in both formats, for AddPair.
  bool WantsPair() const;
  // `step` is the pair's, which may be an earlier one than that which was observed last.
  std::optional<WatchdogFinding> AddPair(int64_t step, const PairedLoss& pair);
  // Whether steps of both formats are to be timed in turn, for AddTimes. Seconds.
  bool WantsTimes() const { return wants_times_; }
  bool IsSlow(double fp32_seconds, double reduced_seconds) const {
    return fp32_seconds < slowdown_.spec.threshold() * reduced_seconds;
  }
  std::optional<WatchdogFinding> AddTimes(double fp32_seconds, double reduced_seconds);
  // The held-out loss after a step, measured in FP32.
  void AddHeldOut(int64_t step, double loss);

  // Forgets what it saw: after a change of precision.
  void Reset();
  bool has_baseline() const { return !baseline_.empty(); }
  // For a job without a baseline: the loss and the times of a few steps in FP32 before the run. No
  // step of the run is compared with them, since no run in FP32 went on from them.
  void SetCalibration(const training::v1::LossCurve& fp32);

  // The loss is more than half way to the threshold of the divergence rule, or the pairs are looked
  // into.
  bool suspicious() const { return elevated() || pairs_.suspicious(); }
  // Mean of the baseline over the window that ended at the newest step; 0 where the baseline has no
  // such step.
  double baseline_loss() const { return baseline_loss_; }
  // (mean loss - mean baseline) / mean baseline over that window; unset until it is full.
  std::optional<double> divergence() const;
  // FP32's median step time / that of the newest full window of the slowdown rule; unset without
  // either.
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

  // Whether the rule fires now; `good` ends the firing.
  static bool Fires(Rule& rule, bool bad, bool good);
  static WatchdogFinding Finding(const Rule& rule, std::string message);
  void JudgeOverflow(Rule& rule, Window& window, bool skipped,
                     std::vector<WatchdogFinding>& findings);
  void JudgeDivergence(const Step& step, std::vector<WatchdogFinding>& findings);
  void WatchSpeed(const Step& step);
  bool elevated() const { return divergence_now_ > divergence_.spec.threshold() / 2; }
  // "the loss is 0.012 where FP32 had 0.01, 20.0 % more over the last 50 steps; ", if that is
  // known.
  std::string Figures() const;
  // Logarithm of a step's loss / the baseline's.
  double Difference(const Step& step) const;
  // Whether the model is as good on held-out examples as FP32's was, after half of these steps.
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
  int64_t step_ = 0;  // Observed last.
  int64_t held_out_step_ = -1;
  double held_out_excess_ = 0;  // Logarithm of the newest held-out loss / FP32's.
  bool wants_times_ = false;
  int64_t next_times_ = 0;  // Step from which times may be wanted again.
  int64_t times_pause_ = 0;
  int64_t skipped_before_first_ = 0;
  bool applied_one_ = false;
};

}  // namespace genesis
