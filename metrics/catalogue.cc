#include "metrics/catalogue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "metrics/catalogue_rows.h"

namespace genesis {
namespace {

using enum MetricKind;

struct Section {
  std::string title;
  std::vector<MetricInfo> metrics;
};

const std::vector<Section>& Sections() {
  static const auto* sections =
      new std::vector<Section>{{"Training", TrainingMetrics()},
                               {"Precision", PrecisionMetrics()},
                               {"Jobs, workers, checkpoints", JobMetrics()},
                               {"Machine", MachineMetrics()},
                               {"Daemon", DaemonMetrics()}};
  return *sections;
}

}  // namespace

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
      "`GET /metrics`: Prometheus text format 0.0.4, or OpenMetrics 1.0.0 where `Accept` asks for "
      "it,\ncompressed where `Accept-Encoding` has gzip. OpenMetrics writes whole bounds of "
      "buckets "
      "as\n`le=\"1.0\"`, the text format as `le=\"1\"`; Prometheus asks for OpenMetrics.\n\n"
      "Printed from `metrics/catalogue_*.cc` by `print_metric_catalogue`; change the tables there, "
      "not\nthis page.\n\n"
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
