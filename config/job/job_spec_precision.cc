#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"
#include "config/precision/precision.h"

namespace genesis {

using training::v1::JobSpec;
using training::v1::PrecisionMode;
using training::v1::PrecisionSpec;

namespace {

// Returns true if the mode may use a loss scale: an FP16 mode, UNSPECIFIED (MIXED_FP16 by default)
// or AUTO (which may choose MIXED_FP16).
bool MayScaleLoss(PrecisionMode mode) {
  return mode != training::v1::PRECISION_MODE_FP32 && mode != training::v1::PRECISION_MODE_BF16 &&
         mode != training::v1::PRECISION_MODE_MIXED_BF16;
}

bool Names(const PrecisionSpec& precision, PrecisionMode mode) {
  for (const int fallback : precision.fallbacks()) {
    if (fallback == mode) return true;
  }
  return false;
}

// Returns true if the mode or one of the fallbacks may use a loss scale.
bool UsesLossScale(const PrecisionSpec& precision) {
  return MayScaleLoss(precision.mode()) || Names(precision, training::v1::PRECISION_MODE_FP16) ||
         Names(precision, training::v1::PRECISION_MODE_MIXED_FP16);
}

// Reports a loss scale with a mode that has none. Both fields are named, because only the user can
// decide which of them is the mistake.
void CheckLossScaleConflicts(const PrecisionSpec& precision, Faults& faults) {
  const auto check = [&](const char* path, double value) {
    if (value == 0) return;
    faults.Add(path, "",
               absl::StrCat(FormatNumber(value), " conflicts with precision.mode ",
                            ShortEnumName(precision.mode()),
                            ", which has no loss scale; remove one of the two"));
  };
  check("precision.loss_scale", precision.loss_scale());
  check("precision.growth_factor", precision.growth_factor());
  check("precision.backoff_factor", precision.backoff_factor());
  check("precision.growth_interval", static_cast<double>(precision.growth_interval()));
  check("precision.min_loss_scale", precision.min_loss_scale());
  check("precision.max_loss_scale", precision.max_loss_scale());
  check("precision.hysteresis", precision.hysteresis());
}

void CheckScale(const char* path, double value, Faults& faults) {
  // The scale is a float on the device, so it must not overflow or underflow there.
  const auto scale = static_cast<float>(value);
  faults.CheckNumber(path, value, scale > 0 && std::isfinite(scale), "a finite float > 0");
}

void CheckLossScale(const PrecisionSpec& precision, Faults& faults) {
  CheckScale("precision.loss_scale", precision.loss_scale(), faults);
  CheckScale("precision.min_loss_scale", precision.min_loss_scale(), faults);
  CheckScale("precision.max_loss_scale", precision.max_loss_scale(), faults);
  const auto ordered = [&](const char* low_path, double low, const char* high_path, double high) {
    if (low <= 0 || high <= 0 || low <= high) return;
    faults.Add(low_path, "",
               absl::StrCat(FormatNumber(low), " conflicts with ", high_path, " ",
                            FormatNumber(high), ", which has to be at least as large"));
  };
  ordered("precision.min_loss_scale", precision.min_loss_scale(), "precision.loss_scale",
          precision.loss_scale());
  ordered("precision.loss_scale", precision.loss_scale(), "precision.max_loss_scale",
          precision.max_loss_scale());
}

void CheckFallbacks(const PrecisionSpec& precision, Faults& faults) {
  for (int i = 0; i < precision.fallbacks_size(); ++i) {
    const PrecisionMode mode = precision.fallbacks(i);
    const std::string path = absl::StrCat("precision.fallbacks[", i, "]");
    if (mode == training::v1::PRECISION_MODE_UNSPECIFIED ||
        mode == training::v1::PRECISION_MODE_AUTO) {
      faults.Add(path, ShortEnumName(mode), "FP32, FP16, BF16, MIXED_FP16 or MIXED_BF16");
    } else if (mode == precision.mode()) {
      faults.Add(path, "",
                 absl::StrCat(ShortEnumName(mode),
                              " conflicts with precision.mode, which is the same; a job cannot "
                              "fall back to what it left"));
    }
  }
  if (precision.promote_after_steps() > 0 &&
      precision.mode() == training::v1::PRECISION_MODE_FP32) {
    faults.Add("precision.promote_after_steps", "",
               absl::StrCat(precision.promote_after_steps(),
                            " conflicts with precision.mode FP32, which never falls back; remove "
                            "one of the two"));
  }
}

void CheckRule(const char* name, const training::v1::WatchdogRule& rule, double highest,
               Faults& faults) {
  const std::string path = absl::StrCat("precision.watchdog.", name);
  const double threshold = rule.threshold();
  faults.CheckNumber(path + ".threshold", threshold, threshold > 0 && threshold <= highest,
                     highest == 1 ? "above 0, at most 1" : "a finite number > 0");
  CheckRanges(path, rule, faults);
}

void CheckWatchdog(const PrecisionSpec& precision, Faults& faults) {
  const training::v1::WatchdogSpec& watchdog = precision.watchdog();
  constexpr double kAny = HUGE_VAL;
  CheckRule("non_finite", watchdog.non_finite(), 1, faults);
  CheckRule("overflow", watchdog.overflow(), 1, faults);
  CheckRule("divergence", watchdog.divergence(), kAny, faults);
  CheckRule("overflow_warning", watchdog.overflow_warning(), 1, faults);
  CheckRule("slowdown", watchdog.slowdown(), kAny, faults);
  CheckRanges("precision.watchdog", watchdog, faults);
  if (!precision.baseline_file().empty()) {
    faults.CheckPath("precision.baseline_file", precision.baseline_file(), "a .jsonl file",
                     {".jsonl"});
  }
}

void CheckRehearsals(const JobSpec& spec, Faults& faults) {
  for (int i = 0; i < spec.rehearsals_size(); ++i) {
    const training::v1::RehearsalSpec& rehearsal = spec.rehearsals(i);
    const std::string path = absl::StrCat("rehearsals[", i, "]");
    if (rehearsal.kind() == training::v1::REHEARSAL_KIND_UNSPECIFIED) {
      faults.Add(path + ".kind", "",
                 "required; give INF, NAN, SPIKE, SLOW, STALE, SATURATE, UNDERFLOW, "
                 "TRUNCATE or POISON");
    }
    if (rehearsal.at_step() == 0) {
      faults.Add(path + ".at_step", "", "required; give the step (>= 1) that it acts in");
    }
    CheckRanges(path, rehearsal, faults);
    const int last = std::max(spec.training().gradient_accumulation_steps(), 1) - 1;
    if (rehearsal.micro_batch() < 0 || rehearsal.micro_batch() > last) {
      faults.Add(path + ".micro_batch", absl::StrCat(rehearsal.micro_batch()),
                 absl::StrCat("0 to ", last,
                              ", for training.gradient_accumulation_steps counts micro-batches"));
    }
  }
}

double DefaultAmount(training::v1::RehearsalKind kind) {
  switch (kind) {
    case training::v1::REHEARSAL_KIND_SLOW:
      return 0.1;
    case training::v1::REHEARSAL_KIND_SATURATE:
    case training::v1::REHEARSAL_KIND_UNDERFLOW:
      return 1e-4;
    case training::v1::REHEARSAL_KIND_TRUNCATE:
      return 7;
    case training::v1::REHEARSAL_KIND_POISON:
      return 1;
    default:
      return 1000;
  }
}

}  // namespace

void FillPrecision(JobSpec& spec, const LossScaleSettings& loss_scale) {
  PrecisionSpec& precision = *spec.mutable_precision();
  if (MayScaleLoss(precision.mode())) {
    if (precision.loss_scale() == 0) precision.set_loss_scale(loss_scale.initial);
    if (precision.growth_factor() == 0) precision.set_growth_factor(loss_scale.growth_factor);
    if (precision.backoff_factor() == 0) precision.set_backoff_factor(loss_scale.backoff_factor);
    if (precision.growth_interval() == 0) precision.set_growth_interval(loss_scale.growth_interval);
    if (precision.min_loss_scale() == 0) {
      precision.set_min_loss_scale(std::min(1.0, precision.loss_scale()));
    }
    if (precision.hysteresis() == 0) precision.set_hysteresis(1);
  }
  FillDefaults(precision);
  training::v1::WatchdogSpec& watchdog = *precision.mutable_watchdog();
  const auto fill = [](training::v1::WatchdogRule& rule, training::v1::WatchdogAction action,
                       double threshold, int window) {
    if (rule.action() == training::v1::WATCHDOG_ACTION_UNSPECIFIED) rule.set_action(action);
    if (rule.threshold() == 0) rule.set_threshold(threshold);
    if (rule.window_steps() == 0) rule.set_window_steps(window);
  };
  constexpr auto kEnforce = training::v1::WATCHDOG_ACTION_ENFORCE;
  constexpr auto kAdvise = training::v1::WATCHDOG_ACTION_ADVISE;
  fill(*watchdog.mutable_non_finite(), kEnforce, 0, 1);
  fill(*watchdog.mutable_overflow(), kEnforce, 0.30, 100);
  fill(*watchdog.mutable_divergence(), kEnforce, 0.20, 50);
  fill(*watchdog.mutable_overflow_warning(), kAdvise, 0.10, 100);
  fill(*watchdog.mutable_slowdown(), kAdvise, 0.8, 50);
  FillDefaults(watchdog);
  for (training::v1::RehearsalSpec& rehearsal : *spec.mutable_rehearsals()) {
    FillDefaults(rehearsal);
    if (rehearsal.amount() == 0) rehearsal.set_amount(DefaultAmount(rehearsal.kind()));
  }
}

void CheckPrecision(const JobSpec& spec, Faults& faults) {
  const PrecisionSpec& precision = spec.precision();
  // An invalid mode has been reported already, so the checks that depend on it are skipped.
  const bool known = training::v1::PrecisionMode_IsValid(precision.mode());
  if (known && UsesLossScale(precision)) CheckLossScale(precision, faults);
  if (known && !UsesLossScale(precision)) CheckLossScaleConflicts(precision, faults);
  CheckRanges("precision", precision, faults);
  if (known) CheckFallbacks(precision, faults);
  CheckWatchdog(precision, faults);
  CheckRehearsals(spec, faults);
}

}  // namespace genesis
