#include "trainer/guard/calibration.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/enum_names.h"
#include "config/precision/precision.h"
#include "trainer/precision/median.h"
#include "trainer/runtime/device_memory.h"
#include "trainer/runtime/processor_clock.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using training::v1::CalibrationResult;
using training::v1::PrecisionMode;

constexpr double kMaxDeviation = 0.05;
constexpr double kMaxOverflows = 0.05;
// Number of first steps that are not timed, because they choose algorithms and fill caches.
constexpr int kWarmUp = 2;
// Maximum number of skipped steps before the first applied one, while the scale adapts.
constexpr int kMaxSearch = 24;
// Number of turns, and of steps per turn, of a timing comparison during a run.
constexpr int kTurns = 4;
constexpr int kStepsOfTurn = 3;
// Minimum speed relative to FP32 that justifies a mode.
constexpr double kWorthwhile = 1.05;

struct Measured {
  CalibrationResult result;
  std::vector<double> losses;
  double processor_seconds = 0;
};

Measured Measure(TrainingSession& session, const TrainingState& from, PrecisionMode mode,
                 int steps) {
  Require(session.PutState(from, mode), training::v1::FAILURE_CAUSE_INTERNAL);
  ResetPeakMemory(session.device());
  Measured measured;
  measured.result.set_mode(mode);
  std::vector<double> seconds;
  std::vector<double> processor_seconds;
  int64_t step = from.position.progress.step();
  for (int search = 0; static_cast<int>(measured.losses.size()) < steps;) {
    const auto begin = std::chrono::steady_clock::now();
    const double processor_begin = ProcessorSeconds();
    session.step().Run(++step);
    const StepMetrics metrics = session.step().Read();
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() +
        (IsReducedPrecision(mode) ? session.faults().Delay(step) : 0);
    if (metrics.skipped && measured.losses.empty() && ++search < kMaxSearch) {
      // Repeat the batch at the lower scale, so that its loss is compared with that of FP32.
      TrainingState again = from;
      again.scaler = session.scaler_state();
      Require(session.PutState(again, mode), training::v1::FAILURE_CAUSE_INTERNAL);
      --step;
      continue;
    }
    if (metrics.skipped) measured.result.set_skipped_steps(measured.result.skipped_steps() + 1);
    measured.losses.push_back(metrics.loss);
    if (static_cast<int>(measured.losses.size()) <= kWarmUp) continue;
    seconds.push_back(took);
    processor_seconds.push_back(ProcessorSeconds() - processor_begin);
  }
  measured.result.set_step_seconds(Median(std::move(seconds)));
  measured.processor_seconds = Median(std::move(processor_seconds));
  measured.result.set_peak_device_bytes(ReadDeviceMemory(session.device()).peak);
  return measured;
}

double Deviation(const Measured& measured, const Measured& fp32) {
  double sum = 0;
  for (size_t i = 0; i < fp32.losses.size(); ++i) {
    const double difference = std::abs(measured.losses[i] - fp32.losses[i]);
    if (difference != 0) sum += difference / std::abs(fp32.losses[i]);
  }
  return sum / static_cast<double>(fp32.losses.size());
}

// Returns why a mode cannot be chosen, or "".
std::string Objection(const CalibrationResult& result, int steps, double speed) {
  if (!(result.loss_deviation() <= kMaxDeviation)) {
    return absl::StrFormat("its loss differs from FP32's by %.2f %%; accepted: at most %g %%",
                           100 * result.loss_deviation(), 100 * kMaxDeviation);
  }
  if (result.skipped_steps() > kMaxOverflows * steps) {
    return absl::StrFormat("%d of %d steps overflowed; accepted: at most %g %%",
                           result.skipped_steps(), steps, 100 * kMaxOverflows);
  }
  if (speed < kWorthwhile) {
    return absl::StrFormat("%.2f times the speed of FP32; accepted: %g or more", speed,
                           kWorthwhile);
  }
  return "";
}

}  // namespace

Calibration Calibrate(TrainingSession& session, const std::vector<PrecisionMode>& modes,
                      int steps) {
  steps = std::max(steps, kWarmUp + 1);
  // Keep state of a user's module that checkpoints lack, such as lists, and restore it at the end.
  const std::shared_ptr<const void> kept = session.model().KeepState();
  const TrainingState from = session.TakeState({});
  Calibration calibration;
  const Measured fp32 = Measure(session, from, training::v1::PRECISION_MODE_FP32, steps);
  calibration.results.push_back(fp32.result);
  for (size_t i = 0; i < fp32.losses.size(); ++i) {
    calibration.fp32.add_steps(from.position.progress.step() + 1 + static_cast<int64_t>(i));
    calibration.fp32.add_losses(fp32.losses[i]);
  }
  calibration.fp32.set_step_seconds(fp32.result.step_seconds());
  calibration.fp32.set_step_processor_seconds(fp32.processor_seconds);
  const double fp32_seconds = fp32.result.step_seconds();
  double best = fp32_seconds;
  for (const PrecisionMode mode : modes) {
    if (mode == training::v1::PRECISION_MODE_FP32) continue;
    Measured measured = Measure(session, from, mode, steps);
    CalibrationResult& result = measured.result;
    result.set_loss_deviation(Deviation(measured, fp32));
    const double speed = fp32_seconds / result.step_seconds();
    const std::string objection = Objection(result, steps, speed);
    result.set_verdict(!objection.empty()
                           ? absl::StrCat("refused: ", objection)
                           : absl::StrFormat("accepted: %.2f times the speed of FP32, loss within "
                                             "%.2f %%",
                                             speed, 100 * result.loss_deviation()));
    if (objection.empty() && result.step_seconds() < best) {
      best = result.step_seconds();
      calibration.chosen = mode;
    }
    calibration.results.push_back(result);
  }
  const bool reduced = calibration.chosen != training::v1::PRECISION_MODE_FP32;
  calibration.results.front().set_verdict(reduced ? "the reference" : "chosen");
  calibration.reason =
      absl::StrFormat("measured over %d steps: FP32 %.3g ms a step", steps, 1e3 * fp32_seconds);
  for (CalibrationResult& result : calibration.results) {
    if (result.mode() == training::v1::PRECISION_MODE_FP32) continue;
    if (result.mode() == calibration.chosen) {
      result.set_verdict(absl::StrCat("chosen, ", result.verdict()));
    }
    absl::StrAppend(&calibration.reason, "; ", ShortEnumName(result.mode()),
                    absl::StrFormat(" %.3g ms, ", 1e3 * result.step_seconds()), result.verdict());
  }
  Require(session.PutState(from, calibration.chosen), training::v1::FAILURE_CAUSE_INTERNAL);
  return calibration;
}

StepTimes TimeBesideFp32(TrainingSession& session, int64_t step) {
  const std::shared_ptr<const void> kept = session.model().KeepState();
  RunPosition position;
  position.progress.set_step(step);
  const TrainingState from = session.TakeState(position);
  const PrecisionMode mode = session.mode();
  std::vector<double> fp32;
  std::vector<double> reduced;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const PrecisionMode timed : {training::v1::PRECISION_MODE_FP32, mode}) {
      Require(session.PutState(from, timed), training::v1::FAILURE_CAUSE_INTERNAL);
      std::vector<double>& seconds = timed == mode ? reduced : fp32;
      for (int i = 1; i <= kStepsOfTurn; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        session.step().Run(step + i);
        session.step().Read();
        const double took =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const double delay = timed == mode ? session.faults().Delay(step) : 0;
        // The first step of a turn fills caches.
        if (i > 1) seconds.push_back(took + delay);
      }
    }
  }
  Require(session.PutState(from, mode), training::v1::FAILURE_CAUSE_INTERNAL);
  if (from.device_rng_state.defined()) {
    at::Generator generator = at::globalContext().defaultGenerator(session.device());
    generator.set_state(from.device_rng_state);
  }
  // Interference can only make a step longer, so take the minimum.
  return {.fp32 = *std::min_element(fp32.begin(), fp32.end()),
          .reduced = *std::min_element(reduced.begin(), reduced.end())};
}

void TakeFromFirst(RankGroup& ranks, Calibration& calibration) {
  training::v1::EffectivePrecision told;
  told.set_mode(calibration.chosen);
  told.set_reason(calibration.reason);
  told.mutable_report()->mutable_calibration()->Assign(calibration.results.begin(),
                                                       calibration.results.end());
  ranks.CopyFromFirst(told);
  calibration.chosen = told.mode();
  calibration.reason = told.reason();
  calibration.results.assign(told.report().calibration().begin(),
                             told.report().calibration().end());
  ranks.CopyFromFirst(calibration.fp32);
}

void TakeFromFirst(RankGroup& ranks, StepTimes& times) {
  training::v1::LossCurve told;
  told.add_losses(times.fp32);
  told.add_losses(times.reduced);
  ranks.CopyFromFirst(told);
  times = {.fp32 = told.losses(0), .reduced = told.losses(1)};
}

}  // namespace genesis
