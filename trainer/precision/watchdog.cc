#include "trainer/precision/watchdog.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "trainer/precision/median.h"

namespace genesis {
namespace {

// A scale that starts at 65536 and halves reaches its floor in fewer.
constexpr int64_t kSkippedAtStart = 24;

size_t SizeOf(const training::v1::WatchdogRule& rule) {
  return static_cast<size_t>(std::max(rule.window_steps(), 1));
}

}  // namespace

Watchdog::Watchdog(const training::v1::WatchdogSpec& spec, Baseline baseline)
    : baseline_(std::move(baseline)),
      overflow_{"overflow", spec.overflow()},
      divergence_{"divergence", spec.divergence()},
      overflow_warning_{"overflow_warning", spec.overflow_warning()},
      slowdown_{"slowdown", spec.slowdown()},
      overflows_{SizeOf(spec.overflow())},
      warned_overflows_{SizeOf(spec.overflow_warning())},
      losses_{SizeOf(spec.divergence())},
      baselines_{SizeOf(spec.divergence())},
      seconds_{SizeOf(spec.slowdown())},
      fp32_step_seconds_(baseline_.step_seconds()) {}

void Watchdog::SetBaseline(Baseline baseline) {
  baseline_ = std::move(baseline);
  fp32_step_seconds_ = baseline_.step_seconds();
}

void Watchdog::Window::Add(double value) {
  values.push_back(value);
  sum += value;
  if (values.size() <= size) return;
  sum -= values.front();
  values.pop_front();
}

void Watchdog::Reset() {
  for (Rule* const rule : {&overflow_, &divergence_, &overflow_warning_, &slowdown_}) {
    rule->firing = false;
  }
  for (Window* const window : {&overflows_, &warned_overflows_, &losses_, &baselines_, &seconds_}) {
    window->values.clear();
    window->sum = 0;
  }
  divergence_now_ = 0;
  skipped_before_first_ = 0;
  applied_one_ = false;
}

std::vector<WatchdogFinding> Watchdog::Observe(const Step& step) {
  std::vector<WatchdogFinding> findings;
  applied_one_ = applied_one_ || !step.skipped;
  if (applied_one_ || ++skipped_before_first_ > kSkippedAtStart) {
    JudgeOverflow(overflow_, overflows_, step.skipped, findings);
    JudgeOverflow(overflow_warning_, warned_overflows_, step.skipped, findings);
  }
  JudgeDivergence(step, findings);
  JudgeSlowdown(step, findings);
  return findings;
}

bool Watchdog::Fires(Rule& rule, bool bad, bool good) {
  const bool fires = bad && !rule.firing && rule.spec.action() != training::v1::WATCHDOG_ACTION_OFF;
  rule.firing = bad || (rule.firing && !good);
  return fires;
}

WatchdogFinding Watchdog::Finding(const Rule& rule, std::string message) {
  return {.rule = rule.name,
          .enforce = rule.spec.action() == training::v1::WATCHDOG_ACTION_ENFORCE,
          .message = std::move(message)};
}

void Watchdog::JudgeOverflow(Rule& rule, Window& window, bool skipped,
                             std::vector<WatchdogFinding>& findings) {
  window.Add(skipped ? 1 : 0);
  const double share = window.sum / static_cast<double>(window.size);
  const double threshold = rule.spec.threshold();
  if (!Fires(rule, share > threshold, share <= threshold / 2)) return;
  findings.push_back(Finding(
      rule, absl::StrFormat("%.0f of the last %d steps overflowed and were skipped; accepted: at "
                            "most %g of them",
                            window.sum, window.size, threshold)));
}

void Watchdog::JudgeDivergence(const Step& step, std::vector<WatchdogFinding>& findings) {
  if (!baseline_.Covers(step.step) || step.skipped || !std::isfinite(step.loss)) return;
  losses_.Add(step.loss);
  baselines_.Add(baseline_.At(step.step));
  baseline_loss_ = baselines_.mean();
  if (!losses_.full() || baseline_loss_ <= 0) return;
  divergence_now_ = (losses_.mean() - baseline_loss_) / baseline_loss_;
  const double threshold = divergence_.spec.threshold();
  if (!Fires(divergence_, divergence_now_ > threshold, divergence_now_ <= threshold / 2)) return;
  findings.push_back(Finding(
      divergence_,
      absl::StrFormat("the loss is %.6g where FP32 had %.6g, %.1f %% more over the last %d steps; "
                      "accepted: at most %g %%",
                      losses_.mean(), baseline_loss_, 100 * divergence_now_, losses_.size,
                      100 * threshold)));
}

void Watchdog::JudgeSlowdown(const Step& step, std::vector<WatchdogFinding>& findings) {
  if (fp32_step_seconds_ <= 0) return;
  seconds_.Add(step.seconds);
  // A median costs a sort: once per window is soon enough.
  if (!seconds_.full() || step.step % static_cast<int64_t>(seconds_.size) != 0) return;
  const double median = Median({seconds_.values.begin(), seconds_.values.end()});
  const double speed = median > 0 ? fp32_step_seconds_ / median : 1;
  const double threshold = slowdown_.spec.threshold();
  if (!Fires(slowdown_, speed < threshold, speed >= threshold)) return;
  findings.push_back(
      Finding(slowdown_,
              absl::StrFormat("a step takes %.3g s where FP32 took %.3g s, %.2f times its speed; "
                              "accepted: %g or more",
                              median, fp32_step_seconds_, speed, threshold)));
}

}  // namespace genesis
