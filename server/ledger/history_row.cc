#include "server/ledger/history_row.h"

#include <algorithm>

#include "base/timestamp.h"
#include "config/precision/precision.h"

namespace genesis {
namespace {

using training::v1::PrecisionMode;
using training::v1::Progress;

constexpr char kDivergence[] = "divergence";

int64_t Divergences(const training::v1::Job& job) {
  return std::count_if(job.incidents().begin(), job.incidents().end(),
                       [](const auto& incident) { return incident.rule() == kDivergence; });
}

// Returns the overflow steps, or an upper bound for jobs of earlier versions, which have no count.
int64_t OverflowSteps(const Progress& progress) {
  if (progress.has_overflow_steps()) return progress.overflow_steps();
  return std::min(progress.skipped_steps(), progress.reduced_precision_steps());
}

}  // namespace

std::optional<double> OverflowRate(const Progress& progress) {
  if (progress.reduced_precision_steps() == 0) return std::nullopt;
  return static_cast<double>(OverflowSteps(progress)) /
         static_cast<double>(progress.reduced_precision_steps());
}

PrecisionMode ModeOf(const training::v1::Job& job) {
  if (job.progress().mode() != training::v1::PRECISION_MODE_UNSPECIFIED) {
    return job.progress().mode();
  }
  return job.precision().mode();
}

training::v1::HistoryRow MakeHistoryRow(const training::v1::Job& job, bool fp16_enabled,
                                        std::optional<int64_t> device_memory, absl::Time now) {
  const Progress& progress = job.progress();
  training::v1::HistoryRow row;
  *row.mutable_time() = ToTimestamp(now);
  row.set_job_id(job.id());
  row.set_step(progress.step());
  row.set_mode(ModeOf(job));
  if (progress.step() > 0) {
    row.set_loss(progress.loss());
    if (HasLossScale(row.mode())) row.set_loss_scale(progress.loss_scale());
    // An attempt that has not measured its speed yet reports 0, which is left unset.
    if (progress.samples_per_second() > 0) {
      row.set_samples_per_second(progress.samples_per_second());
    }
  }
  if (progress.baseline_loss() > 0) row.set_baseline_loss(progress.baseline_loss());
  if (progress.has_divergence_ratio()) row.set_divergence_ratio(progress.divergence_ratio());
  if (job.has_evaluation() && job.evaluation().step() == progress.step()) {
    row.set_held_out_loss(job.evaluation().loss());
  }
  row.set_training_steps(progress.step());
  row.set_fp16_steps(progress.reduced_precision_steps());
  row.set_overflow_steps(OverflowSteps(progress));
  if (const std::optional<double> rate = OverflowRate(progress)) row.set_overflow_rate(*rate);
  const auto action = job.spec().precision().watchdog().divergence().action();
  if (row.fp16_steps() > 0 && action != training::v1::WATCHDOG_ACTION_OFF) {
    row.set_divergences(Divergences(job));
  }
  row.set_fp16_enabled(fp16_enabled);
  if (device_memory) row.set_memory_allocated_bytes(*device_memory);
  row.set_state(job.state());
  return row;
}

}  // namespace genesis
