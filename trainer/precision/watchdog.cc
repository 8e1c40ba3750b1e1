#include "trainer/precision/watchdog.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "trainer/precision/median.h"

namespace genesis {
namespace {

// A scale that starts at 65536 and halves reaches its floor in fewer steps.
constexpr int64_t kSkippedAtStart = 24;
// Windows between two measurements of times; doubles each time.
constexpr int64_t kTimesPause = 10;
// A difference below this fraction of the first baseline loss is ignored: both losses are
// practically zero.
constexpr double kImmaterial = 1e-7;
// Lower bound in messages; no test is more certain than that.
constexpr double kLeastChance = 1e-15;

size_t SizeOf(const training::v1::WatchdogRule& rule) {
  return static_cast<size_t>(std::max(rule.window_steps(), 1));
}

}  // namespace

Watchdog::Watchdog(const training::v1::WatchdogSpec& spec, Baseline baseline)
    : overflow_{"overflow", spec.overflow()},
      divergence_{"divergence", spec.divergence()},
      overflow_warning_{"overflow_warning", spec.overflow_warning()},
      slowdown_{"slowdown", spec.slowdown()},
      overflows_{SizeOf(spec.overflow())},
      warned_overflows_{SizeOf(spec.overflow_warning())},
      losses_{SizeOf(spec.divergence())},
      baselines_{SizeOf(spec.divergence())},
      seconds_{SizeOf(spec.slowdown())},
      processor_seconds_{SizeOf(spec.slowdown())},
      // Each of the two kinds of evidence gets half of the rate.
      pairs_(spec.divergence().threshold(), spec.divergence().window_steps(),
             spec.max_false_alarm_rate() / 2),
      curve_(spec.divergence().threshold(), spec.divergence().window_steps(),
             spec.max_false_alarm_rate() / 2) {
  baseline_ = std::move(baseline);
  curve_.SetBaseline(baseline_);
  SetCalibration(baseline_.curve());
}

void Watchdog::SetCalibration(const training::v1::LossCurve& fp32) {
  fp32_step_seconds_ = fp32.step_seconds();
  fp32_processor_seconds_ = fp32.step_processor_seconds();
  if (!fp32.losses().empty()) pairs_.SetFirstLoss(fp32.losses(0));
}

void Watchdog::Window::Add(double value) {
  values.push_back(value);
  sum += value;
  if (values.size() <= size) return;
  sum -= values.front();
  values.pop_front();
}

void Watchdog::Window::Clear() {
  values.clear();
  sum = 0;
}

std::optional<double> Watchdog::divergence() const {
  if (!losses_.full() || baseline_loss_ <= 0) return std::nullopt;
  return divergence_now_;
}

void Watchdog::Reset() {
  for (Rule* const rule : {&overflow_, &divergence_, &overflow_warning_, &slowdown_}) {
    rule->firing = false;
  }
  for (Window* const window :
       {&overflows_, &warned_overflows_, &losses_, &baselines_, &seconds_, &processor_seconds_}) {
    window->Clear();
  }
  pairs_.Reset();
  curve_.Reset();
  baseline_loss_ = divergence_now_ = 0;
  held_out_step_ = -1;
  wants_times_ = false;
  next_times_ = times_pause_ = 0;
  skipped_before_first_ = 0;
  applied_one_ = false;
}

std::vector<WatchdogFinding> Watchdog::Observe(const Step& step) {
  std::vector<WatchdogFinding> findings;
  step_ = step.step;
  applied_one_ = applied_one_ || !step.skipped;
  if (applied_one_ || ++skipped_before_first_ > kSkippedAtStart) {
    JudgeOverflow(overflow_, overflows_, step.skipped, findings);
    JudgeOverflow(overflow_warning_, warned_overflows_, step.skipped, findings);
  }
  JudgeDivergence(step, findings);
  WatchSpeed(step);
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
  if (!baseline_.Covers(step.step)) {
    losses_.Clear();
    baselines_.Clear();
    baseline_loss_ = divergence_now_ = 0;
    return;
  }
  if (step.skipped || !std::isfinite(step.loss)) return;
  losses_.Add(step.loss);
  baselines_.Add(baseline_.At(step.step));
  baseline_loss_ = baselines_.mean();
  const std::optional<CurveFinding> found = curve_.Add(step.step, Difference(step));
  if (!losses_.full() || baseline_loss_ <= 0) return;
  divergence_now_ = (losses_.mean() - baseline_loss_) / baseline_loss_;
  const bool material = losses_.mean() - baseline_loss_ > kImmaterial * baseline_.curve().losses(0);
  const bool bad = found && material && !HeldOutIsFine(step.step, found->steps);
  if (!Fires(divergence_, bad, !elevated() && !pairs_.suspicious())) return;
  findings.push_back(Finding(
      divergence_,
      absl::StrFormat("%sover the last %d steps it was %.1f %% more, which two runs that train "
                      "alike come to by chance once in %.2g times; accepted: at most %g %%",
                      Figures(), found->steps, 100 * found->excess,
                      1 / std::max(found->chance, kLeastChance),
                      100 * divergence_.spec.threshold())));
}

std::string Watchdog::Figures() const {
  if (baseline_loss_ <= 0 || !losses_.full()) return "";
  return absl::StrFormat(
      "the loss is %.6g where FP32 had %.6g, %.1f %% more over the last %d steps; ", losses_.mean(),
      baseline_loss_, 100 * divergence_now_, losses_.size);
}

double Watchdog::Difference(const Step& step) const {
  // Count the harmless loss that rounding adds as part of the FP32 loss, not of the excess.
  return LogLoss(step.loss) - LogLoss(std::exp(baseline_.LogAt(step.step)) + pairs_.rounding());
}

bool Watchdog::WantsPair() const {
  return divergence_.spec.action() != training::v1::WATCHDOG_ACTION_OFF &&
         pairs_.Wants(step_, divergence_now_);
}

std::optional<WatchdogFinding> Watchdog::AddPair(int64_t step, const PairedLoss& pair) {
  const std::optional<PairFinding> found = pairs_.Add(step, pair);
  if (!Fires(divergence_, found.has_value(), !elevated() && !pairs_.suspicious())) {
    return std::nullopt;
  }
  return Finding(divergence_,
                 absl::StrFormat("%sin this format %d batches lose %.1f %% more than the same "
                                 "batches with the same weights in FP32, which chance brings once "
                                 "in %.2g times; accepted: at most %g %%%s",
                                 Figures(), found->pairs, 100 * found->excess,
                                 1 / std::max(found->chance, kLeastChance),
                                 100 * divergence_.spec.threshold() / (found->lasting ? 2 : 1),
                                 found->lasting ? " that stay" : ""));
}

void Watchdog::AddHeldOut(int64_t step, double loss) {
  const std::optional<double> fp32 = baseline_.HeldOutAt(step);
  if (!fp32 || !std::isfinite(loss)) return;
  held_out_step_ = step;
  held_out_excess_ = LogLoss(loss) - LogLoss(*fp32);
}

bool Watchdog::HeldOutIsFine(int64_t step, int64_t steps) const {
  return held_out_step_ >= step - steps / 2 && held_out_step_ >= 0 &&
         held_out_excess_ <= std::log1p(divergence_.spec.threshold() / 4);
}

void Watchdog::WatchSpeed(const Step& step) {
  if (fp32_step_seconds_ <= 0) return;
  seconds_.Add(step.seconds);
  processor_seconds_.Add(step.processor_seconds);
  // A median needs a sort, so compute it only once per window.
  if (!seconds_.full() || step.step % static_cast<int64_t>(seconds_.size) != 0) return;
  const auto ratio = [](double fp32, const Window& window) -> std::optional<double> {
    const double median = Median({window.values.begin(), window.values.end()});
    if (median <= 0) return std::nullopt;
    return fp32 / median;
  };
  const auto slower = [&](std::optional<double> speed) {
    return speed && *speed < slowdown_.spec.threshold();
  };
  speed_ = ratio(fp32_step_seconds_, seconds_);
  if (slowdown_.spec.action() == training::v1::WATCHDOG_ACTION_OFF) return;
  const bool slow =
      slower(speed_) && (fp32_processor_seconds_ <= 0 || step.processor_seconds <= 0 ||
                         slower(ratio(fp32_processor_seconds_, processor_seconds_)));
  // Only a timed comparison (AddTimes) reports or withdraws a slowdown, because medians depend on
  // the load of other programs.
  wants_times_ = slow != slowdown_.firing && step.step >= next_times_;
}

std::optional<WatchdogFinding> Watchdog::AddTimes(double fp32_seconds, double reduced_seconds) {
  wants_times_ = false;
  const bool slow = IsSlow(fp32_seconds, reduced_seconds);
  times_pause_ = std::max(2 * times_pause_, kTimesPause * static_cast<int64_t>(seconds_.size));
  next_times_ = step_ + times_pause_;
  if (!Fires(slowdown_, slow, !slow)) return std::nullopt;
  return Finding(slowdown_,
                 absl::StrFormat("a step takes %.3g s where FP32 takes %.3g s, measured in turn: "
                                 "%.2f times its speed; accepted: %g or more",
                                 reduced_seconds, fp32_seconds, fp32_seconds / reduced_seconds,
                                 slowdown_.spec.threshold()));
}

}  // namespace genesis
