#pragma once

#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "metrics/family.h"
#include "metrics/metrics.h"

namespace genesis {

using CounterFamily = MetricFamily<prometheus::Counter>;
using GaugeFamily = MetricFamily<prometheus::Gauge>;
using HistogramFamily = MetricFamily<prometheus::Histogram>;

// All families of the catalogue, except those read at each scrape. Owner: Metrics.
// Thread-safe, as MetricFamily is.
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
  GaugeFamily divergence = Gauge("genesis_loss_divergence_ratio");
  GaugeFamily speed_ratio = Gauge("genesis_step_speed_to_fp32_ratio");
  GaugeFamily held_out_loss = Gauge("genesis_held_out_loss");
  GaugeFamily cuda_memory = Gauge("genesis_cuda_memory_allocated_bytes");
  GaugeFamily cuda_reserved = Gauge("genesis_cuda_memory_reserved_bytes");
  GaugeFamily cuda_peak = Gauge("genesis_cuda_memory_peak_bytes");
  GaugeFamily memory_ratio = Gauge("genesis_cuda_memory_to_fp32_ratio");

  GaugeFamily jobs = Gauge("genesis_jobs");
  CounterFamily jobs_finished = Counter("genesis_jobs_finished_total");
  GaugeFamily queue_depth = Gauge("genesis_queue_depth");
  GaugeFamily workers = Gauge("genesis_workers");
  GaugeFamily slots = Gauge("genesis_worker_slots");
  GaugeFamily rank_wait = Gauge("genesis_rank_wait_ratio");
  CounterFamily restarts = Counter("genesis_worker_restarts_total");
  CounterFamily checkpoints = Counter("genesis_checkpoints_total");
  CounterFamily checkpoint_failures = Counter("genesis_checkpoint_failures_total");
  HistogramFamily checkpoint_seconds = Histogram("genesis_checkpoint_duration_seconds");
  GaugeFamily checkpoint_bytes = Gauge("genesis_checkpoint_bytes");
  GaugeFamily last_step = Gauge("genesis_last_step_timestamp_seconds");
  GaugeFamily unprotected_since = Gauge("genesis_unprotected_since_timestamp_seconds");

  GaugeFamily quarantined = Gauge("genesis_device_quarantined");
  GaugeFamily gpu_memory_used = Gauge("genesis_gpu_memory_used_bytes");
  GaugeFamily gpu_memory_total = Gauge("genesis_gpu_memory_total_bytes");
  GaugeFamily gpu_utilization = Gauge("genesis_gpu_utilization_ratio");
  GaugeFamily gpu_power = Gauge("genesis_gpu_power_watts");
  GaugeFamily gpu_temperature = Gauge("genesis_gpu_temperature_celsius");
  GaugeFamily gpu_throttled = Gauge("genesis_gpu_throttled");
  GaugeFamily volume_free = Gauge("genesis_volume_free_bytes");
  GaugeFamily volume_size = Gauge("genesis_volume_size_bytes");

  GaugeFamily build = Gauge("genesis_build_info");
  GaugeFamily ready = Gauge("genesis_ready");
  GaugeFamily config_errors = Gauge("genesis_config_errors");
  CounterFamily reloads = Counter("genesis_config_reloads_total");
  GaugeFamily last_reload = Gauge("genesis_config_last_reload_success");
  GaugeFamily certificate_end = Gauge("genesis_tls_certificate_not_after_timestamp_seconds");
  CounterFamily refused = Counter("genesis_connections_refused_total");
  CounterFamily caught = Counter("genesis_caught_errors_total");
  CounterFamily audit_lost = Counter("genesis_audit_lines_lost_total");
  CounterFamily history_lost = Counter("genesis_history_rows_lost_total");
  CounterFamily otlp_dropped = Counter("genesis_otlp_dropped_total");
  CounterFamily webhook_deliveries = Counter("genesis_webhook_deliveries_total");
  GaugeFamily webhook_age = Gauge("genesis_webhook_oldest_pending_seconds");
  CounterFamily requests = Counter("genesis_requests_total");

  // Held while a group of series changes and during a scrape, which so sees all changes or none.
  std::mutex exchange_mutex;
  std::set<std::pair<std::string, std::string>> precisions_shown;  // Mode and device.
  std::vector<JobStatistics> jobs_shown;                           // Rendered at each scrape.
  std::map<std::string, std::set<std::string>> throttle_reasons;   // Exported reasons, by device.
};

}  // namespace genesis
