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

}  // namespace

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  {
    const std::lock_guard<std::mutex> lock(series_->exchange_mutex);
    families = series_->registry.Collect();
  }
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
