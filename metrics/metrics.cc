#include "metrics/metrics.h"

#include <cmath>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/text/enum_names.h"
#include "config/precision/precision.h"
#include "metrics/series.h"

namespace genesis {
namespace {

using training::v1::FailureCause;
using training::v1::JobState;
using training::v1::PrecisionMode;

std::string StateLabel(JobState state) { return absl::AsciiStrToLower(ShortEnumName(state)); }

std::string CauseLabel(FailureCause cause) {
  if (cause == training::v1::FAILURE_CAUSE_UNSPECIFIED) return "none";
  return absl::AsciiStrToLower(ShortEnumName(cause));
}

// A NaN would make a histogram's sum NaN, and a negative time is an error of the clock.
void ObserveTime(prometheus::Histogram& histogram, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) histogram.Observe(seconds);
}

}  // namespace

Metrics::Metrics(const std::string& deployment, const std::string& version)
    : series_(std::make_unique<Series>(deployment)) {
  Series& s = *series_;
  s.build.With({version}).Set(1);
  // A counter that has counted nothing must be exported as 0. Otherwise rate() would not see the
  // first failure as an increase.
  for (CounterFamily* family :
       {&s.trainings, &s.successes, &s.samples, &s.appended, &s.reduced_steps, &s.overflow_steps,
        &s.scale_growths, &s.scale_backoffs, &s.checkpoints, &s.checkpoint_failures, &s.caught,
        &s.audit_lost, &s.history_lost}) {
    family->With({});
  }
  s.skipped_steps.With({"overflow"});
  for (const char* const result : {"success", "failure"}) s.reloads.With({result});
  for (const char* const reason : {"file_handles", "max_connections", "resets"})
    s.refused.With({reason});
  for (const char* const trigger :
       {"non_finite", "overflow", "divergence", "scale_floor", "slowdown", "promotion", "policy"}) {
    s.precision_changes.With({trigger});
  }
  for (const char* const rule : {"non_finite", "overflow", "overflow_warning", "divergence",
                                 "scale_floor", "slowdown", "failures"}) {
    s.incidents.With({rule});
  }
  for (const char* const reason : {"crash", "hang", "device_error", "daemon_restart"}) {
    s.restarts.With({reason});
  }
  for (int state = training::v1::JobState_MIN + 1; state <= training::v1::JobState_MAX; ++state) {
    s.jobs.With({StateLabel(static_cast<JobState>(state))});
  }
  for (int cause = training::v1::FailureCause_MIN + 1; cause <= training::v1::FailureCause_MAX;
       ++cause) {
    s.jobs_finished.With({"failed", CauseLabel(static_cast<FailureCause>(cause))});
  }
  for (const char* const state : {"succeeded", "cancelled"}) s.jobs_finished.With({state, "none"});
  s.training_seconds.With({});
  s.checkpoint_seconds.With({});
}

Metrics::~Metrics() = default;

void Metrics::JobMoved(JobState from, JobState to) {
  if (from != training::v1::JOB_STATE_UNSPECIFIED)
    series_->jobs.With({StateLabel(from)}).Decrement();
  if (to != training::v1::JOB_STATE_UNSPECIFIED) series_->jobs.With({StateLabel(to)}).Increment();
}

void Metrics::SetJobs(JobState state, int64_t count) {
  series_->jobs.With({StateLabel(state)}).Set(static_cast<double>(count));
}

void Metrics::JobFinished(JobState state, FailureCause cause, double seconds) {
  Series& s = *series_;
  s.jobs_finished.With({StateLabel(state), CauseLabel(cause)}).Increment();
  if (seconds > 0) ObserveTime(s.training_seconds.With({}), seconds);
  const bool succeeded = state == training::v1::JOB_STATE_SUCCEEDED;
  if (succeeded || state == training::v1::JOB_STATE_FAILED) s.trainings.With({}).Increment();
  if (succeeded) s.successes.With({}).Increment();
}

void Metrics::Steps(const training::v1::Steps& steps, PrecisionMode mode) {
  Series& s = *series_;
  const std::string label = PrecisionLabel(mode);
  s.steps.With({label}).Increment(static_cast<double>(steps.new_steps()));
  s.samples.With({}).Increment(static_cast<double>(steps.new_samples()));
  s.reduced_steps.With({}).Increment(static_cast<double>(steps.new_reduced_precision_steps()));
  s.scale_growths.With({}).Increment(static_cast<double>(steps.new_scale_growths()));
  s.scale_backoffs.With({}).Increment(static_cast<double>(steps.new_scale_backoffs()));
  s.skipped_steps.With({"overflow"}).Increment(static_cast<double>(steps.new_skipped_steps()));
  s.overflow_steps.With({}).Increment(static_cast<double>(steps.new_overflow_steps()));
  for (const float seconds : steps.step_seconds()) {
    ObserveTime(s.step_seconds.With({label}), seconds);
  }
  if (steps.new_steps() > 0) {
    s.last_step.With({}).Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  }
}

void Metrics::ShowRunning(const RunningStatistics& statistics) {
  Series& s = *series_;
  const std::lock_guard<std::mutex> lock(s.exchange_mutex);
  s.loss.Put({}, statistics.loss);
  s.baseline_loss.Put({}, statistics.baseline_loss);
  s.divergence.Put({}, statistics.divergence);
  s.speed_ratio.Put({}, statistics.speed_ratio);
  s.grad_norm.Put({}, statistics.grad_norm);
  s.loss_scale.Put({}, statistics.loss_scale);
  s.held_out_loss.Put({}, statistics.held_out_loss);
  s.memory_ratio.Put({}, statistics.memory_ratio);
  s.rank_wait.Put({}, statistics.wait_ratio);
  for (const char* const label : {"fp32", "fp16", "bf16"}) {
    const auto found = statistics.memory.find(label);
    const bool known = found != statistics.memory.end();
    const auto put = [&](GaugeFamily& family, int64_t AllocatorMemory::*bytes) {
      family.Put({label}, known ? std::optional(found->second.*bytes) : std::nullopt);
    };
    put(s.cuda_memory, &AllocatorMemory::allocated);
    put(s.cuda_reserved, &AllocatorMemory::reserved);
    put(s.cuda_peak, &AllocatorMemory::peak);
  }
  for (const auto& [mode, device] : s.precisions_shown) {
    if (!statistics.precisions.contains({mode, device})) {
      s.precision.Put({mode, device}, std::optional<double>());
    }
  }
  for (const auto& [mode, device] : statistics.precisions) s.precision.With({mode, device}).Set(1);
  s.precisions_shown = statistics.precisions;
  s.jobs_shown = statistics.jobs;
}

void Metrics::PrecisionChanged(const std::string& trigger) {
  series_->precision_changes.With({trigger}).Increment();
}

void Metrics::IncidentSeen(const std::string& rule) { series_->incidents.With({rule}).Increment(); }

void Metrics::TransitionsAppended(int64_t count) {
  series_->appended.With({}).Increment(static_cast<double>(count));
}

void Metrics::CheckpointWritten(double seconds, int64_t bytes) {
  series_->checkpoints.With({}).Increment();
  ObserveTime(series_->checkpoint_seconds.With({}), seconds);
  series_->checkpoint_bytes.With({}).Set(static_cast<double>(bytes));
}

void Metrics::SetUnprotectedSince(std::optional<double> unix_seconds) {
  series_->unprotected_since.Put({}, unix_seconds);
}

void Metrics::CheckpointFailed() { series_->checkpoint_failures.With({}).Increment(); }

void Metrics::WorkerRestarted(const std::string& reason) {
  series_->restarts.With({reason}).Increment();
}

void Metrics::SetQueueDepth(int jobs) { series_->queue_depth.With({}).Set(jobs); }

void Metrics::SetWorkers(int busy, int warm, int slots) {
  series_->workers.With({"busy"}).Set(busy);
  series_->workers.With({"warm"}).Set(warm);
  series_->slots.With({}).Set(slots);
}

void Metrics::SetQuarantined(const std::string& device, bool quarantined) {
  series_->quarantined.With({device}).Set(quarantined ? 1 : 0);
}

void Metrics::SetVolume(const std::string& volume,
                        const std::optional<VolumeStatistics>& statistics) {
  Series& s = *series_;
  const std::lock_guard<std::mutex> lock(s.exchange_mutex);
  s.volume_free.Put({volume}, statistics ? std::optional(statistics->free) : std::nullopt);
  s.volume_size.Put({volume}, statistics ? std::optional(statistics->size) : std::nullopt);
}

void Metrics::SetGpu(const GpuStatistics& gpu) {
  Series& s = *series_;
  const std::lock_guard<std::mutex> lock(s.exchange_mutex);
  s.gpu_memory_used.Put({gpu.device}, gpu.memory_used_bytes);
  s.gpu_memory_total.Put({gpu.device}, gpu.memory_total_bytes);
  s.gpu_utilization.Put({gpu.device}, gpu.utilization_ratio);
  s.gpu_power.Put({gpu.device}, gpu.power_watts);
  s.gpu_temperature.Put({gpu.device}, gpu.temperature_celsius);
  std::set<std::string>& shown = s.throttle_reasons[gpu.device];
  for (const std::string& reason : shown) {
    s.gpu_throttled.Put({gpu.device, reason}, std::optional<double>());
  }
  shown = {gpu.throttle_reasons.begin(), gpu.throttle_reasons.end()};
  for (const std::string& reason : shown) s.gpu_throttled.With({gpu.device, reason}).Set(1);
}

void Metrics::SetGate(bool enabled, int config_errors) {
  series_->gate.With({}).Set(enabled ? 1 : 0);
  series_->config_errors.With({}).Set(config_errors);
}

void Metrics::SetReady(bool ready) { series_->ready.With({}).Set(ready ? 1 : 0); }

void Metrics::ConfigReloaded(bool success) {
  series_->reloads.With({success ? "success" : "failure"}).Increment();
  series_->last_reload.With({}).Set(success ? 1 : 0);
}

void Metrics::SetCertificateEnd(double unix_seconds) {
  series_->certificate_end.With({}).Set(unix_seconds);
}

void Metrics::ConnectionRefused(const std::string& reason) {
  series_->refused.With({reason}).Increment();
}

void Metrics::AuditLineLost() { series_->audit_lost.With({}).Increment(); }

void Metrics::ErrorsCaught(int64_t errors) {
  series_->caught.With({}).Increment(static_cast<double>(errors));
}

void Metrics::HistoryRowsLost(int64_t rows) {
  series_->history_lost.With({}).Increment(static_cast<double>(rows));
}

void Metrics::OtlpDropped(const std::string& signal, int64_t items) {
  series_->otlp_dropped.With({signal}).Increment(static_cast<double>(items));
}

void Metrics::WebhookAttempted(const std::string& endpoint, const std::string& outcome) {
  series_->webhook_deliveries.With({endpoint, outcome}).Increment();
}

void Metrics::AddWebhookEndpoint(const std::string& endpoint) {
  for (const char* const outcome : {"delivered", "failed", "dead"}) {
    series_->webhook_deliveries.With({endpoint, outcome});
  }
}

void Metrics::SetOldestWebhook(double seconds) { series_->webhook_age.With({}).Set(seconds); }

void Metrics::Request(const std::string& protocol, const std::string& method,
                      const std::string& code) {
  series_->requests.With({protocol, method, code}).Increment();
}

}  // namespace genesis
