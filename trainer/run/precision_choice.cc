#include "trainer/run/precision_choice.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "config/precision/precision.h"
#include "trainer/guard/calibration.h"
#include "trainer/guard/precision_report.h"

namespace genesis {

using training::v1::EffectivePrecision;
using training::v1::PrecisionMode;
using training::v1::StartJob;

PrecisionMode ModeBeforeChoice(const StartJob& start) {
  const PrecisionMode mode = start.precision().mode();
  return mode == training::v1::PRECISION_MODE_AUTO ? training::v1::PRECISION_MODE_FP32 : mode;
}

EffectivePrecision ChoosePrecision(const StartJob& start, const training::v1::DeviceInfo& device,
                                   const TrainingState* resumed, TrainingSession& session,
                                   PrecisionGuard& guard, RankGroup& ranks, RunObserver& observer) {
  EffectivePrecision effective = start.precision();
  const bool automatic = effective.mode() == training::v1::PRECISION_MODE_AUTO;
  // Without a baseline, only a calibration provides FP32's times and first loss to the watchdog.
  const bool needs_times = IsReducedPrecision(effective.mode()) && !guard.has_baseline();
  std::optional<Calibration> calibration;
  if (resumed == nullptr && (automatic || needs_times)) {
    calibration = Calibrate(session, automatic ? AllowedModes(start) : std::vector<PrecisionMode>(),
                            start.spec().precision().calibration_steps());
    TakeFromFirst(ranks, *calibration);
    if (!guard.has_baseline()) guard.SetCalibration(calibration->fp32);
  }
  if (calibration && automatic) {
    effective.set_mode(calibration->chosen);
    effective.set_reason(
        absl::StrCat(ShortEnumName(calibration->chosen), ": ", calibration->reason));
  } else if (automatic) {
    effective.set_mode(resumed->position.progress.mode());
    effective.set_reason(absl::StrCat(ShortEnumName(resumed->position.progress.mode()),
                                      ": chosen when the job began"));
  }
  guard.Begin(effective.mode(), resumed);
  if (guard.mode() != effective.mode()) {
    effective.set_reason(absl::StrCat(ShortEnumName(guard.mode()), ": the job fell back from ",
                                      ShortEnumName(effective.mode()), " before"));
    effective.set_mode(guard.mode());
  }
  effective.set_execution(session.execution());
  *effective.mutable_report() = ReportPrecision(session, device);
  if (calibration && automatic) {
    effective.mutable_report()->mutable_calibration()->Assign(calibration->results.begin(),
                                                              calibration->results.end());
  }
  observer.OnLog("precision: " + effective.reason());
  observer.OnLog("step: " + effective.execution());
  if (!ranks.alone()) observer.OnLog("gradients: " + session.exchange());
  return effective;
}

}  // namespace genesis
