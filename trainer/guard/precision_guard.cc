#include "trainer/guard/precision_guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/enum_names.h"
#include "base/timestamp.h"
#include "config/precision/precision.h"
#include "trainer/guard/calibration.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using training::v1::PrecisionMode;
using training::v1::StartJob;

// Number of successive non-finite steps at which the guard falls back or fails the job.
constexpr int64_t kMaxNonFiniteInRow = 10;
// Maximum number of steps between states for a rewind, if no checkpoint is nearer.
constexpr int64_t kGoodStateSteps = 500;

// Returns the curve of the file that the job names, otherwise the curve from the daemon.
Baseline ReadBaseline(const StartJob& start) {
  const std::string& file = start.spec().precision().baseline_file();
  if (file.empty()) return Baseline(start.baseline());
  absl::StatusOr<training::v1::LossCurve> curve = ReadLossCurve(file);
  Require(curve.status(), training::v1::FAILURE_CAUSE_DATA);
  return Baseline(*std::move(curve));
}

}  // namespace

PrecisionGuard::PrecisionGuard(const StartJob& start, TrainingSession& session,
                               RunObserver& observer)
    : start_(start),
      spec_(start.spec().precision()),
      session_(session),
      observer_(observer),
      watchdog_(spec_.watchdog(), ReadBaseline(start)) {}

void PrecisionGuard::Begin(PrecisionMode mode, const TrainingState* resumed) {
  std::vector<PrecisionMode> allowed = AllowedModes(start_);
  allowed.push_back(mode);
  policy_.emplace(spec_, std::move(allowed), mode);
  if (resumed != nullptr) policy_->LoadState(resumed->position.progress.mode(), resumed->policy);
  session_.SetMode(policy_->mode(), /*keep_scale=*/resumed != nullptr);
}

bool PrecisionGuard::WantsGoodState(int64_t step) const {
  return reduced() &&
         (good_ == nullptr || step >= good_->position.progress.step() + kGoodStateSteps);
}

std::optional<PrecisionDecision> PrecisionGuard::Judge(int64_t step, const StepMetrics& metrics,
                                                       const StepCost& cost) {
  const bool overflow = metrics.skipped && FormatOf(mode()).scaled;
  const bool non_finite = !std::isfinite(metrics.loss) || (metrics.skipped && !overflow);
  NoteNonFinite(non_finite);
  if (non_finite) return JudgeNonFinite(step, metrics);
  if (overflow) {
    policy_->TroubleSeen();
    if (metrics.loss_scale <= session_.lowest_loss_scale()) return JudgeFloor(step, metrics);
  } else {
    policy_->AddCleanStep();
  }
  if (auto decision = JudgeWatched(step, metrics, cost)) return decision;
  if (const std::optional<PrecisionMode> up = policy_->Promotion()) {
    return PrecisionDecision{.to = *up,
                             .rewind = false,
                             .trigger = "promotion",
                             .reason = absl::StrFormat(
                                 "%d steps in %s went without trouble (promotion %d of at most %d)",
                                 policy_->state().clean_steps, ShortEnumName(mode()),
                                 policy_->state().promotions + 1, spec_.max_promotions())};
  }
  return std::nullopt;
}

void PrecisionGuard::NoteNonFinite(bool non_finite) {
  non_finite_in_row_ = non_finite ? non_finite_in_row_ + 1 : 0;
  non_finite_.push_back(non_finite);
  const auto window = static_cast<size_t>(spec_.watchdog().non_finite().window_steps());
  if (non_finite_.size() > std::max<size_t>(window, 1)) non_finite_.pop_front();
}

bool PrecisionGuard::TooManyNonFinite() const {
  const training::v1::WatchdogRule& rule = spec_.watchdog().non_finite();
  const auto count = std::count(non_finite_.begin(), non_finite_.end(), true);
  return static_cast<double>(count) > rule.threshold() * std::max(rule.window_steps(), 1);
}

std::optional<PrecisionDecision> PrecisionGuard::JudgeNonFinite(int64_t step,
                                                                const StepMetrics& metrics) {
  policy_->TroubleSeen();
  const NonFiniteDiagnosis found = DiagnoseLastStep(session_, step, metrics.loss_scale);
  const std::string what = std::isfinite(metrics.loss)
                               ? absl::StrFormat("the gradient norm became %g", metrics.grad_norm)
                               : absl::StrFormat("the loss became %g", metrics.loss);
  const std::string where =
      found.module.empty() ? "" : absl::StrCat("; first non-finite output: ", found.module);
  const std::string message = absl::StrCat(
      what, " at step ", step, " in ", ShortEnumName(mode()), where,
      "; verdict: ", VerdictName(found.verdict),
      found.verdict == Verdict::kLabels ? " (no label of the batch counts in the loss)" : "");
  const training::v1::WatchdogAction action = spec_.watchdog().non_finite().action();
  if (action != training::v1::WATCHDOG_ACTION_OFF) Report(step, "non_finite", message, found);

  const bool passing = found.verdict == Verdict::kData || found.verdict == Verdict::kLabels ||
                       found.verdict == Verdict::kPassed;
  if (passing && non_finite_in_row_ < kMaxNonFiniteInRow) return std::nullopt;
  if (found.verdict == Verdict::kData) {
    Fail(training::v1::FAILURE_CAUSE_DATA,
         absl::StrCat(message, "; ", non_finite_in_row_,
                      " batches in a row hold values that are not finite or beyond 65504; repair "
                      "the dataset"));
  }
  if (found.verdict == Verdict::kLabels) {
    Fail(training::v1::FAILURE_CAUSE_DATA,
         absl::StrCat(message, "; ", non_finite_in_row_,
                      " batches in a row have labels that are all ignored, or weights that are all "
                      "0; correct the labels"));
  }
  const bool enforce = action == training::v1::WATCHDOG_ACTION_ENFORCE ||
                       action == training::v1::WATCHDOG_ACTION_UNSPECIFIED;
  const bool last_resort = non_finite_in_row_ >= kMaxNonFiniteInRow;
  if (reduced() && enforce && (TooManyNonFinite() || last_resort)) {
    const bool rewind = found.verdict == Verdict::kDivergence || found.verdict == Verdict::kWeights;
    return FallBack("non_finite", rewind, message);
  }
  if (reduced() && non_finite_in_row_ < kMaxNonFiniteInRow) return std::nullopt;
  Fail(training::v1::FAILURE_CAUSE_NON_FINITE,
       absl::StrFormat("%s; lower optimizer.learning_rate (it is %g) or look for outliers in the "
                       "dataset",
                       message, start_.spec().optimizer().learning_rate()));
}

PrecisionDecision PrecisionGuard::JudgeFloor(int64_t step, const StepMetrics& metrics) {
  const std::string message = absl::StrFormat(
      "gradients overflow at step %d although the loss scale is at its lowest, %g; "
      "the loss is %g",
      step, metrics.loss_scale, metrics.loss);
  const NonFiniteDiagnosis found = DiagnoseLastStep(session_, step, metrics.loss_scale);
  Report(step, "scale_floor", message, found);
  return FallBack("scale_floor", /*rewind=*/found.verdict == Verdict::kDivergence, message);
}

std::optional<PrecisionDecision> PrecisionGuard::JudgeWatched(int64_t step,
                                                              const StepMetrics& metrics,
                                                              const StepCost& cost) {
  if (!reduced()) return std::nullopt;
  std::vector<WatchdogFinding> findings =
      watchdog_.Observe({.step = step,
                         .loss = metrics.loss,
                         .skipped = metrics.skipped,
                         .seconds = cost.seconds,
                         .processor_seconds = cost.processor_seconds});
  if (pair_) {
    auto finding = watchdog_.AddPair(pair_step_, std::exchange(pair_, std::nullopt)->Read());
    if (finding) findings.push_back(*std::move(finding));
  }
  if (!metrics.skipped && watchdog_.WantsPair()) {
    pair_.emplace(ComparePrecision(session_, step));
    pair_step_ = step;
  }
  for (const WatchdogFinding& finding : findings) {
    const NonFiniteDiagnosis found = metrics.skipped
                                         ? DiagnoseLastStep(session_, step, metrics.loss_scale)
                                         : NonFiniteDiagnosis();
    if (auto decision = Take(step, finding, found)) return decision;
  }
  return std::nullopt;
}

std::optional<PrecisionDecision> PrecisionGuard::JudgeSpeed(int64_t step, RankGroup& ranks) {
  StepTimes times = TimeBesideFp32(session_, step);
  TakeFromFirst(ranks, times);
  if (watchdog_.IsSlow(times.fp32, times.reduced)) {
    // Measure again, so that a temporary load is not attributed to the mode.
    times = TimeBesideFp32(session_, step);
    TakeFromFirst(ranks, times);
  }
  const auto finding = watchdog_.AddTimes(times.fp32, times.reduced);
  return finding ? Take(step, *finding, NonFiniteDiagnosis()) : std::nullopt;
}

std::optional<PrecisionDecision> PrecisionGuard::Take(int64_t step, const WatchdogFinding& finding,
                                                      const NonFiniteDiagnosis& found) {
  Report(step, finding.rule, finding.message, found);
  if (!finding.enforce) return std::nullopt;
  return FallBack(finding.rule, /*rewind=*/finding.rule == "divergence", finding.message);
}

PrecisionDecision PrecisionGuard::FallBack(const std::string& trigger, bool rewind,
                                           const std::string& reason) const {
  return {.to = policy_->Fallback().value_or(training::v1::PRECISION_MODE_FP32),
          .rewind = rewind,
          .trigger = trigger,
          .reason = reason};
}

PrecisionGuard::Change PrecisionGuard::Apply(const PrecisionDecision& decision, int64_t step) {
  Change change;
  training::v1::PrecisionChange& record = change.record;
  record.set_from(mode());
  if (decision.trigger == "promotion") {
    policy_->Promote();
  } else {
    policy_->FallBackTo(decision.to);
  }
  record.set_resumed_step(step);
  if (decision.rewind && good_ != nullptr) {
    Require(session_.PutState(*good_, mode()), training::v1::FAILURE_CAUSE_INTERNAL);
    change.resumed = good_;
    record.set_resumed_step(good_->position.progress.step());
  } else {
    session_.SetMode(mode());
  }
  watchdog_.Reset();
  pair_.reset();
  non_finite_in_row_ = 0;
  non_finite_.clear();
  record.set_step(step);
  record.set_to(mode());
  record.set_trigger(decision.trigger);
  record.set_reason(decision.reason);
  record.set_execution(session_.execution());
  *record.mutable_time() = TimestampNow();
  return change;
}

void PrecisionGuard::Announce(const training::v1::PrecisionChange& change) {
  const std::string to = ShortEnumName(change.to());
  const bool falls = change.trigger() != "promotion";
  observer_.OnLog(absl::StrCat(falls ? absl::StrCat("Falling back to ", to, ": ") : "",
                               "precision changes from ", ShortEnumName(change.from()), " to ", to,
                               " after step ", change.step(), " (", change.trigger(),
                               "): ", change.reason(),
                               change.resumed_step() < change.step()
                                   ? absl::StrCat("; continues from step ", change.resumed_step())
                                   : ""));
  observer_.OnLog("step: " + change.execution());
  observer_.OnPrecisionChanged(change);
}

void PrecisionGuard::Report(int64_t step, const std::string& rule, const std::string& message,
                            const NonFiniteDiagnosis& found) {
  training::v1::Incident incident;
  incident.set_step(step);
  incident.set_rule(rule);
  incident.set_message(message);
  found.Describe(incident);
  *incident.mutable_time() = TimestampNow();
  observer_.OnLog(absl::StrCat("incident (", rule, ") at step ", step, ": ", message));
  observer_.OnIncident(incident);
}

void PrecisionGuard::Fail(training::v1::FailureCause cause, const std::string& what) const {
  throw RunFailure{cause, what};
}

}  // namespace genesis
