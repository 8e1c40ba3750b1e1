#include "metrics/metrics.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/job_names.h"
#include "config/precision.h"
#include "metrics/family.h"
#include "metrics/process_stats.h"

namespace genesis {
namespace {

using training::v1::FailureCause;
using training::v1::JobState;
using training::v1::PrecisionMode;

using CounterFamily = MetricFamily<prometheus::Counter>;
using GaugeFamily = MetricFamily<prometheus::Gauge>;
using HistogramFamily = MetricFamily<prometheus::Histogram>;

std::string StateLabel(JobState state) { return absl::AsciiStrToLower(JobStateName(state)); }

std::string CauseLabel(FailureCause cause) {
  if (cause == training::v1::FAILURE_CAUSE_UNSPECIFIED) return "none";
  return absl::AsciiStrToLower(FailureCauseName(cause));
}

bool HasLossScale(PrecisionMode mode) {
  return mode == training::v1::PRECISION_MODE_FP16 ||
         mode == training::v1::PRECISION_MODE_MIXED_FP16;
}

// One NaN would spoil a histogram's sum, and a negative time is a fault of the clock.
void ObserveTime(prometheus::Histogram& histogram, double seconds) {
  if (std::isfinite(seconds) && seconds >= 0) histogram.Observe(seconds);
}

// The kernel's figures are read at each scrape, so they are not families of the registry.
void AppendProcessStats(const std::string& deployment,
                        std::vector<prometheus::MetricFamily>& families) {
  const ProcessStats stats = ReadProcessStats();
  const std::pair<const char*, std::optional<double>> values[] = {
      {"process_cpu_seconds_total", stats.cpu_seconds},
      {"process_resident_memory_bytes", stats.resident_bytes},
      {"process_open_fds", stats.open_fds},
      {"process_max_fds", stats.max_fds},
      {"process_start_time_seconds", stats.start_time_seconds},
  };
  for (const auto& [name, value] : values) {
    const MetricInfo* info = FindMetric(name);
    if (info == nullptr || !value.has_value()) continue;
    prometheus::ClientMetric metric;
    metric.label = {{"deployment", deployment}};
    const bool counter = info->kind == MetricKind::kCounter;
    (counter ? metric.counter.value : metric.gauge.value) = *value;
    families.push_back({info->name,
                        info->help,
                        counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
                        {metric}});
  }
}

}  // namespace

struct Metrics::Series {
  explicit Series(std::string deployment_label) : deployment(std::move(deployment_label)) {}

  template <typename T>
  MetricFamily<T> Family(const char* name) {
    return MetricFamily<T>(registry, deployment, name);
  }
  CounterFamily Counter(const char* name) { return Family<prometheus::Counter>(name); }
  GaugeFamily Gauge(const char* name) { return Family<prometheus::Gauge>(name); }
  HistogramFamily Histogram(const char* name) { return Family<prometheus::Histogram>(name); }

  const std::string deployment;
  prometheus::Registry registry;

  CounterFamily trainings = Counter("genesis_training_total");
  CounterFamily successes = Counter("genesis_training_success_total");
  HistogramFamily training_seconds = Histogram("genesis_training_duration_seconds");
  CounterFamily samples = Counter("genesis_training_samples_total");
  CounterFamily appended = Counter("genesis_transitions_appended_total");
  GaugeFamily loss = Gauge("genesis_training_loss");
  GaugeFamily grad_norm = Gauge("genesis_grad_norm");
  CounterFamily steps = Counter("genesis_optimizer_steps_total");
  HistogramFamily step_seconds = Histogram("genesis_step_duration_seconds");

  GaugeFamily gate = Gauge("genesis_reduced_precision_enabled");
  GaugeFamily precision = Gauge("genesis_effective_precision_info");
  CounterFamily reduced_steps = Counter("genesis_fp16_training_steps_total");
  CounterFamily overflow_steps = Counter("genesis_fp16_overflow_steps_total");
  CounterFamily skipped_steps = Counter("genesis_skipped_steps_total");
  GaugeFamily loss_scale = Gauge("genesis_loss_scale");
  CounterFamily scale_growths = Counter("genesis_scale_growths_total");
  CounterFamily scale_backoffs = Counter("genesis_scale_backoffs_total");
  CounterFamily precision_changes = Counter("genesis_precision_changes_total");
  CounterFamily incidents = Counter("genesis_incidents_total");
  GaugeFamily baseline_loss = Gauge("genesis_fp32_baseline_loss");
  GaugeFamily held_out_loss = Gauge("genesis_held_out_loss");
  GaugeFamily cuda_memory = Gauge("genesis_cuda_memory_allocated_bytes");

  GaugeFamily jobs = Gauge("genesis_jobs");
  CounterFamily jobs_finished = Counter("genesis_jobs_finished_total");
  GaugeFamily queue_depth = Gauge("genesis_queue_depth");
  GaugeFamily workers = Gauge("genesis_workers");
  GaugeFamily slots = Gauge("genesis_worker_slots");
  CounterFamily restarts = Counter("genesis_worker_restarts_total");
  CounterFamily checkpoints = Counter("genesis_checkpoints_total");
  CounterFamily checkpoint_failures = Counter("genesis_checkpoint_failures_total");
  HistogramFamily checkpoint_seconds = Histogram("genesis_checkpoint_duration_seconds");
  GaugeFamily checkpoint_bytes = Gauge("genesis_checkpoint_bytes");

  GaugeFamily build = Gauge("genesis_build_info");
  GaugeFamily ready = Gauge("genesis_ready");
  GaugeFamily config_errors = Gauge("genesis_config_errors");
  CounterFamily reloads = Counter("genesis_config_reloads_total");
  GaugeFamily last_reload = Gauge("genesis_config_last_reload_success");
  GaugeFamily certificate_end = Gauge("genesis_tls_certificate_not_after_timestamp_seconds");
  CounterFamily refused = Counter("genesis_connections_refused_total");
  CounterFamily audit_lost = Counter("genesis_audit_lines_lost_total");
  CounterFamily requests = Counter("genesis_requests_total");

  // The one series of `precision`; a scrape never sees two.
  std::mutex precision_mutex;
  prometheus::Gauge* newest_precision = nullptr;
};

Metrics::Metrics(const std::string& deployment, const std::string& version)
    : series_(std::make_unique<Series>(deployment)) {
  Series& s = *series_;
  s.build.With({version}).Set(1);
  // A counter that has counted nothing is 0, which is a measurement: without it the first failure
  // would look like no change to rate().
  for (CounterFamily* family :
       {&s.trainings, &s.successes, &s.samples, &s.appended, &s.reduced_steps, &s.overflow_steps,
        &s.scale_growths, &s.scale_backoffs, &s.checkpoints, &s.checkpoint_failures,
        &s.audit_lost}) {
    family->With({});
  }
  s.skipped_steps.With({"overflow"});
  for (const char* const result : {"success", "failure"}) s.reloads.With({result});
  for (const char* const reason : {"file_handles", "max_connections"}) s.refused.With({reason});
  for (const char* const trigger :
       {"non_finite", "overflow", "divergence", "scale_floor", "slowdown", "promotion"}) {
    s.precision_changes.With({trigger});
  }
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
  const double skipped = static_cast<double>(steps.new_skipped_steps());
  s.skipped_steps.With({"overflow"}).Increment(skipped);
  if (IsReducedPrecision(mode)) s.overflow_steps.With({}).Increment(skipped);
  for (const float seconds : steps.step_seconds()) {
    ObserveTime(s.step_seconds.With({label}), seconds);
  }
  if (steps.has_cuda_memory_allocated_bytes()) {
    s.cuda_memory.With({label}).Set(static_cast<double>(steps.cuda_memory_allocated_bytes()));
  }
  // Before the first finished step loss and norm are not measured, and 0 would look perfect.
  if (!steps.has_progress() || steps.progress().step() <= 0) return;
  s.loss.With({}).Set(steps.progress().loss());
  s.grad_norm.With({}).Set(steps.progress().grad_norm());
  if (steps.progress().baseline_loss() > 0) {
    s.baseline_loss.With({}).Set(steps.progress().baseline_loss());
  }
  if (HasLossScale(mode)) s.loss_scale.With({}).Set(steps.progress().loss_scale());
}

void Metrics::PrecisionChanged(const std::string& trigger) {
  series_->precision_changes.With({trigger}).Increment();
}

void Metrics::IncidentSeen(const std::string& rule) { series_->incidents.With({rule}).Increment(); }

void Metrics::Evaluated(double held_out_loss) {
  series_->held_out_loss.With({}).Set(held_out_loss);
}

void Metrics::TransitionsAppended(int64_t count) {
  series_->appended.With({}).Increment(static_cast<double>(count));
}

void Metrics::CheckpointWritten(double seconds, int64_t bytes) {
  series_->checkpoints.With({}).Increment();
  ObserveTime(series_->checkpoint_seconds.With({}), seconds);
  series_->checkpoint_bytes.With({}).Set(static_cast<double>(bytes));
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

void Metrics::SetGate(bool enabled, int config_errors) {
  series_->gate.With({}).Set(enabled ? 1 : 0);
  series_->config_errors.With({}).Set(config_errors);
}

void Metrics::SetEffectivePrecision(const training::v1::EffectivePrecision& precision) {
  Series& s = *series_;
  const std::lock_guard<std::mutex> lock(s.precision_mutex);
  prometheus::Gauge& now = s.precision.With({PrecisionLabel(precision.mode()), precision.device()});
  if (s.newest_precision != nullptr && s.newest_precision != &now) {
    s.precision.Remove(*s.newest_precision);
  }
  now.Set(1);
  s.newest_precision = &now;
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

void Metrics::Request(const std::string& protocol, const std::string& method,
                      const std::string& code) {
  series_->requests.With({protocol, method, code}).Increment();
}

std::string Metrics::RenderText() const {
  try {
    std::vector<prometheus::MetricFamily> families;
    {
      const std::lock_guard<std::mutex> lock(series_->precision_mutex);
      families = series_->registry.Collect();
    }
    AppendProcessStats(series_->deployment, families);
    std::sort(families.begin(), families.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, families);
    return text.str();
  } catch (const std::exception& error) {
    return absl::StrCat("# The metrics could not be rendered: ", error.what(), "\n");
  }
}

}  // namespace genesis
