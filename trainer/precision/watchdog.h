#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "genesis/training/v1/precision.pb.h"
#include "trainer/precision/loss_curve.h"

namespace genesis {

// What a rule of the watchdog says when it fires.
struct WatchdogFinding {
  std::string rule;  // "overflow", "divergence", "overflow_warning" or "slowdown".
  bool enforce = false;
  std::string message;  // One sentence with the figures.
};

// The triggers of the rollback plan that look at more than one step, for a job in reduced
// precision (job.proto, WatchdogSpec). Each rule fires once when its threshold is crossed, and
// again only after the figure has been well on the good side (half the threshold).
//
//   overflow          skipped steps of the last `window_steps` / window_steps > threshold
//   divergence        (mean loss - mean baseline) / mean baseline > threshold over the window, at
//   the
//                     same steps; only upwards, for a lower loss needs no rescue
//   slowdown          FP32's median step time / median step time < threshold over the window
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
  };
  std::vector<WatchdogFinding> Observe(const Step& step);
  // Forgets what it saw: after a change of precision.
  void Reset();
  bool has_baseline() const { return !baseline_.empty(); }
  // For a job that had none.
  void SetBaseline(Baseline baseline);

  // The loss is more than half way to the threshold of the divergence rule.
  bool suspicious() const { return divergence_now_ > divergence_.spec.threshold() / 2; }
  // Mean of the baseline over the window that ended at the newest step; 0 when there is none.
  double baseline_loss() const { return baseline_loss_; }

 private:
  // Values of the last steps with their sum.
  struct Window {
    explicit Window(size_t window_steps) : size(window_steps) {}
    const size_t size;
    std::deque<double> values;
    double sum = 0;
    void Add(double value);
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
  void JudgeSlowdown(const Step& step, std::vector<WatchdogFinding>& findings);

  Baseline baseline_;
  Rule overflow_, divergence_, overflow_warning_, slowdown_;
  Window overflows_, warned_overflows_, losses_, baselines_, seconds_;
  double fp32_step_seconds_ = 0;
  double baseline_loss_ = 0;
  double divergence_now_ = 0;
  int64_t skipped_before_first_ = 0;
  bool applied_one_ = false;
};

}  // namespace genesis
