// The part of Metrics that renders the page of a scrape.
#include <prometheus/metric_family.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "metrics/metrics.h"
#include "metrics/process_stats.h"
#include "metrics/series.h"

namespace genesis {
namespace {

// Process metrics are read at each scrape, so the registry has no families for them.
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

// Jobs come and go, so their series are created at each scrape.
void AppendJobs(const std::string& deployment, const std::vector<JobStatistics>& jobs,
                std::vector<prometheus::MetricFamily>& families) {
  using Read = std::optional<double> (*)(const JobStatistics&);
  const std::pair<const char*, Read> readings[] = {
      {"genesis_job_steps_total",
       [](const JobStatistics& job) { return std::optional<double>(job.steps); }},
      {"genesis_job_overflow_steps_total",
       [](const JobStatistics& job) { return std::optional<double>(job.overflow_steps); }},
      {"genesis_job_training_loss", [](const JobStatistics& job) { return job.loss; }},
      {"genesis_job_loss_divergence_ratio",
       [](const JobStatistics& job) { return job.divergence; }},
      {"genesis_job_step_speed_to_fp32_ratio",
       [](const JobStatistics& job) { return job.speed_ratio; }},
      {"genesis_job_rank_wait_ratio", [](const JobStatistics& job) { return job.wait_ratio; }},
  };
  for (const auto& [name, read] : readings) {
    const MetricInfo* info = FindMetric(name);
    if (info == nullptr) continue;
    const bool counter = info->kind == MetricKind::kCounter;
    prometheus::MetricFamily family = {
        info->name,
        info->help,
        counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
        {}};
    for (const JobStatistics& job : jobs) {
      const std::optional<double> value = read(job);
      if (!value) continue;
      prometheus::ClientMetric& metric = family.metric.emplace_back();
      metric.label = {{"deployment", deployment}, {"job_id", job.job_id}};
      (counter ? metric.counter.value : metric.gauge.value) = *value;
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  std::vector<JobStatistics> jobs;
  {
    const std::lock_guard<std::mutex> lock(series_->exchange_mutex);
    families = series_->registry.Collect();
    jobs = series_->jobs_shown;
  }
  AppendJobs(series_->deployment, jobs, families);
  AppendProcessStats(series_->deployment, families);
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return families;
}

std::string Metrics::Render(MetricsFormat format) const {
  try {
    return Expose(Collect(), format);
  } catch (const std::exception& error) {
    return absl::StrCat("# The metrics could not be rendered: ", error.what(), "\n");
  }
}

}  // namespace genesis
