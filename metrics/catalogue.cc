#include "metrics/catalogue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace genesis {
namespace {

using enum MetricKind;

// A job runs from seconds to weeks.
const std::vector<double> kJobSeconds = {1,    5,     15,    60,    300,    900,
                                         3600, 14400, 43200, 86400, 259200, 604800};
// A step runs from half a millisecond (small model) to minutes.
const std::vector<double> kStepSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                          0.25,   0.5,   1,      2.5,   5,    10,    30,   120};
const std::vector<double> kCheckpointSeconds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                2.5,  5,     10,   30,  60,   300};

std::vector<MetricInfo> TrainingMetrics() {
  return {
      {"genesis_training_total",
       kCounter,
       "jobs",
       {},
       "Jobs that succeeded or failed. Cancelled jobs are not counted, so that "
       "genesis_training_success_total over this is the success rate.",
       {}},
      {"genesis_training_success_total", kCounter, "jobs", {}, "Jobs that succeeded.", {}},
      {"genesis_training_duration_seconds",
       kHistogram,
       "seconds",
       {},
       "Time from a job's first step of work on a worker to its final state.",
       kJobSeconds},
      {"genesis_training_samples_total",
       kCounter,
       "transitions",
       {},
       "Transitions trained on.",
       {}},
      {"genesis_transitions_appended_total",
       kCounter,
       "transitions",
       {},
       "Transitions that AppendTrajectories made durable in replay buffers; repeated batches are "
       "not counted.",
       {}},
      {"genesis_training_loss",
       kGauge,
       "1",
       {},
       "Training loss reported last, of any job; NaN when it was NaN.",
       {}},
      {"genesis_grad_norm",
       kGauge,
       "1",
       {},
       "Global L2 norm of the unscaled gradients before clipping, reported last.",
       {}},
      {"genesis_optimizer_steps_total",
       kCounter,
       "steps",
       {"mode"},
       "Optimizer steps, skipped ones included, by the precision they were made in.",
       {}},
      {"genesis_step_duration_seconds",
       kHistogram,
       "seconds",
       {"mode"},
       "Time of one optimizer step.",
       kStepSeconds},
  };
}

std::vector<MetricInfo> PrecisionMetrics() {
  return {
      {"genesis_reduced_precision_enabled",
       kGauge,
       "1",
       {},
       "1 when the gate lets jobs run in reduced precision, 0 when every job runs in FP32.",
       {}},
      {"genesis_effective_precision_info",
       kGauge,
       "1",
       {"mode", "device"},
       "Always 1; the labels say what the newest job runs in.",
       {}},
      {"genesis_fp16_training_steps_total",
       kCounter,
       "steps",
       {},
       "Optimizer steps in reduced precision (FP16, BF16, mixed), skipped ones included.",
       {}},
      {"genesis_fp16_overflow_steps_total",
       kCounter,
       "steps",
       {},
       "Those of genesis_fp16_training_steps_total that were skipped because a gradient "
       "overflowed.",
       {}},
      {"genesis_skipped_steps_total",
       kCounter,
       "steps",
       {"reason"},
       "Optimizer steps whose update was skipped, in any precision.",
       {}},
      {"genesis_loss_scale",
       kGauge,
       "1",
       {},
       "Gradient scale reported last by a job in an FP16 mode; the other modes have none.",
       {}},
      {"genesis_scale_growths_total",
       kCounter,
       "growths",
       {},
       "Times the gradient scale grew after a clean interval.",
       {}},
      {"genesis_scale_backoffs_total",
       kCounter,
       "reductions",
       {},
       "Times the gradient scale was reduced after an overflow.",
       {}},
      {"genesis_precision_changes_total",
       kCounter,
       "changes",
       {"trigger"},
       "Moves of running jobs from one precision to another, by what made them; all but promotion "
       "are rollbacks.",
       {}},
      {"genesis_incidents_total",
       kCounter,
       "incidents",
       {"rule"},
       "Times a rule of the precision watchdog fired, acting or not.",
       {}},
      {"genesis_fp32_baseline_loss",
       kGauge,
       "1",
       {},
       "Loss that the same workload had in FP32 at the step reported last, smoothed over the "
       "watchdog's window; only where such a curve is known.",
       {}},
      {"genesis_held_out_loss",
       kGauge,
       "1",
       {},
       "Loss of the newest evaluation on held-out data, in FP32.",
       {}},
      {"genesis_cuda_memory_allocated_bytes",
       kGauge,
       "bytes",
       {"mode"},
       "Bytes that the CUDA allocator of the worker held at the last report.",
       {}},
  };
}

std::vector<MetricInfo> JobMetrics() {
  return {
      {"genesis_jobs", kGauge, "jobs", {"state"}, "Jobs in each state.", {}},
      {"genesis_jobs_finished_total",
       kCounter,
       "jobs",
       {"state", "cause"},
       "Jobs that reached a final state; cause is \"none\" unless they failed.",
       {}},
      {"genesis_queue_depth", kGauge, "jobs", {}, "Jobs that wait for a worker slot.", {}},
      {"genesis_workers",
       kGauge,
       "workers",
       {"state"},
       "Worker processes that run a job (busy) or are ready for one (warm).",
       {}},
      {"genesis_worker_slots", kGauge, "slots", {}, "Jobs that can run at the same time.", {}},
      {"genesis_worker_restarts_total",
       kCounter,
       "restarts",
       {"reason"},
       "Workers that were replaced before their job had ended.",
       {}},
      {"genesis_checkpoints_total",
       kCounter,
       "checkpoints",
       {},
       "Checkpoints that became durable.",
       {}},
      {"genesis_checkpoint_failures_total",
       kCounter,
       "checkpoints",
       {},
       "Checkpoints that could not be written.",
       {}},
      {"genesis_checkpoint_duration_seconds",
       kHistogram,
       "seconds",
       {},
       "Time from a checkpoint's snapshot until it is durable.",
       kCheckpointSeconds},
      {"genesis_checkpoint_bytes", kGauge, "bytes", {}, "Size of the newest checkpoint.", {}},
  };
}

std::vector<MetricInfo> DaemonMetrics() {
  return {
      {"genesis_build_info", kGauge, "1", {"version"}, "Always 1; the label says what runs.", {}},
      {"genesis_ready", kGauge, "1", {}, "1 when /readyz answers 200, else 0.", {}},
      {"genesis_config_errors",
       kGauge,
       "errors",
       {},
       "Configuration values that could not be read and were replaced by a safe one.",
       {}},
      {"genesis_config_reloads_total",
       kCounter,
       "reloads",
       {"result"},
       "Reloads of settings, tokens or certificates while the daemon ran; result is success or "
       "failure. One that fails changes nothing.",
       {}},
      {"genesis_config_last_reload_success",
       kGauge,
       "1",
       {},
       "1 when the newest reload succeeded, 0 when it failed; absent before the first.",
       {}},
      {"genesis_tls_certificate_not_after_timestamp_seconds",
       kGauge,
       "seconds",
       {},
       "When the certificate in use ends, since the Unix epoch; absent without TLS.",
       {}},
      {"genesis_connections_refused_total",
       kCounter,
       "connections",
       {"reason"},
       "Connections to the gRPC API that were closed at once; reason is file_handles or "
       "max_connections.",
       {}},
      {"genesis_audit_lines_lost_total",
       kCounter,
       "lines",
       {},
       "Lines of the audit log that could not be written.",
       {}},
      {"genesis_requests_total",
       kCounter,
       "requests",
       {"protocol", "method", "code"},
       "Finished requests; code is the gRPC code's name or the HTTP status.",
       {}},
      {"process_cpu_seconds_total",
       kCounter,
       "seconds",
       {},
       "User and system processor time of the daemon.",
       {}},
      {"process_resident_memory_bytes", kGauge, "bytes", {}, "Resident memory of the daemon.", {}},
      {"process_open_fds", kGauge, "handles", {}, "Open file handles of the daemon.", {}},
      {"process_max_fds", kGauge, "handles", {}, "Limit of open file handles of the daemon.", {}},
      {"process_start_time_seconds",
       kGauge,
       "seconds",
       {},
       "Start of the daemon since the Unix epoch.",
       {}},
  };
}

struct Section {
  std::string title;
  std::vector<MetricInfo> metrics;
};

const std::vector<Section>& Sections() {
  static const auto* sections =
      new std::vector<Section>{{"Training", TrainingMetrics()},
                               {"Precision", PrecisionMetrics()},
                               {"Jobs, workers, checkpoints", JobMetrics()},
                               {"Daemon", DaemonMetrics()}};
  return *sections;
}

std::string KindName(MetricKind kind) {
  switch (kind) {
    case kCounter:
      return "counter";
    case kGauge:
      return "gauge";
    case kHistogram:
      return "histogram";
  }
  return "";
}

}  // namespace

const std::vector<MetricInfo>& MetricCatalogue() {
  static const auto* all = [] {
    auto* metrics = new std::vector<MetricInfo>;
    for (const Section& section : Sections()) {
      metrics->insert(metrics->end(), section.metrics.begin(), section.metrics.end());
    }
    return metrics;
  }();
  return *all;
}

const MetricInfo* FindMetric(std::string_view name) {
  const std::vector<MetricInfo>& all = MetricCatalogue();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const MetricInfo& info) { return info.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string MetricCatalogueAsMarkdown() {
  std::string page =
      "# Metrics\n\n"
      "`GET /metrics`, Prometheus text format 0.0.4. Printed from `metrics/catalogue.cc` by\n"
      "`print_metric_catalogue`; change the table there, not this page.\n\n"
      "Every series also carries `deployment=\"stable\"` or `deployment=\"canary\"`. `mode` is "
      "`fp32`,\n"
      "`fp16` or `bf16`, mixed and pure alike. A value that was not measured has no series: a "
      "gauge\n"
      "appears with its first report. No label holds a job id.\n";
  for (const Section& section : Sections()) {
    absl::StrAppend(&page, "\n## ", section.title,
                    "\n\n| Name | Kind | Unit | Labels | Meaning |\n|---|---|---|---|---|\n");
    for (const MetricInfo& metric : section.metrics) {
      std::string meaning = metric.help;
      if (!metric.buckets.empty()) {
        absl::StrAppend(&meaning, " Buckets: ", absl::StrJoin(metric.buckets, ", "), ".");
      }
      absl::StrAppend(&page, "| `", metric.name, "` | ", KindName(metric.kind), " | ", metric.unit,
                      " | ", absl::StrJoin(metric.labels, ", "), " | ", meaning, " |\n");
    }
  }
  return page;
}

}  // namespace genesis
