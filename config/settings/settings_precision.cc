// Settings for reduced precision: whether it is allowed, and the default loss scale of jobs.
#include <cmath>

#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

// A boolean that is false if any source sets it to false.
ValueKind<bool> Allowance() {
  ValueKind<bool> kind = TrueOrFalse();
  kind.read = [read = kind.read](const std::string& text, bool& allowed) {
    bool here = true;
    std::string accepted = read(text, here);
    allowed = allowed && here;
    return accepted;
  };
  return kind;
}

// The scale is a float on the device, so it must not overflow or underflow there.
bool IsScale(double value) {
  const float scale = static_cast<float>(value);
  return scale > 0 && std::isfinite(scale);
}

}  // namespace

std::vector<SettingRow> PrecisionRows() {
  SettingGroup precision(
      "precision", [](auto& s) -> auto& { return s.precision; });
  precision
      .Add("reduced_precision", &PrecisionSettings::reduced_precision, Allowance(), "",
           "false keeps every job in FP32. true leaves it to ENABLE_FP16_TRAINING and "
           "FEATURE_FLAGS. A false in any place wins.")
      .Add("cpu_fallback", &PrecisionSettings::cpu_fallback,
           OneOf<CpuFallback>({{"bf16", CpuFallback::kBf16},
                               {"fp32", CpuFallback::kFp32},
                               {"emulate", CpuFallback::kEmulate}}),
           "",
           "What FP16 jobs run in on a machine without CUDA: bf16 takes MIXED_BF16 where the "
           "processor multiplies BF16 natively, else FP32. emulate runs FP16 20 to 140 times "
           "slower than FP32, to rehearse a rollback.")
      .Add("failure_watch", &PrecisionSettings::failure_watch,
           OneOf<FailureWatchAction>({{"off", FailureWatchAction::kOff},
                                      {"advise", FailureWatchAction::kAdvise},
                                      {"enforce", FailureWatchAction::kEnforce}}),
           "",
           "What happens when more than half of the newest 10 jobs in reduced precision (at least "
           "4) failed: enforce starts every new attempt in FP32 until genesisd is restarted, "
           "advise only logs and counts.")
      .Reloadable();
  SettingGroup rehearsals(
      "rehearsals", [](auto& s) -> auto& { return s.rehearsals; });
  rehearsals.Flag("allowed", &RehearsalSettings::allowed,
                  "true accepts jobs with rehearsals: faults made on purpose, to see the precision "
                  "policy act.");
  SettingGroup scale(
      "precision", [](auto& s) -> auto& { return s.precision.loss_scale; });
  scale
      .Real("loss_scale", &LossScaleSettings::initial, "a float > 0", Json{{"exclusiveMinimum", 0}},
            &IsScale, "Initial gradient scale of jobs that name none.")
      .Environment("FP16_LOSS_SCALE")
      .Real(
          "growth_factor", &LossScaleSettings::growth_factor, "a float > 1",
          Json{{"exclusiveMinimum", 1}}, [](double v) { return v > 1; },
          "Growth of the gradient scale after a clean interval.")
      .Environment("FP16_GROWTH_FACTOR")
      .Real(
          "backoff_factor", &LossScaleSettings::backoff_factor, "a float above 0 and below 1",
          Json{{"exclusiveMinimum", 0}, {"exclusiveMaximum", 1}},
          [](double v) { return v > 0 && v < 1; }, "Reduction of the gradient scale on overflow.")
      .Environment("FP16_BACKOFF_FACTOR")
      .Number("growth_interval", &LossScaleSettings::growth_interval, {1}, "steps",
              "Clean steps between growths of the gradient scale.")
      .Environment("FP16_GROWTH_INTERVAL");
  return RowsOf(precision, rehearsals, scale);
}

}  // namespace genesis
