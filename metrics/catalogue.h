#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace genesis {

enum class MetricKind { kCounter, kGauge, kHistogram };

// A metric as operators see it. Every series also has the label `deployment`, not listed here.
struct MetricInfo {
  std::string name;
  MetricKind kind;
  std::string unit;  // Base unit for display; "1" if dimensionless.
  std::vector<std::string> labels;
  std::string help;
  std::vector<double> buckets;  // Upper bounds, histograms only.
};

// Returns every metric of the daemon, in the order of docs/metrics.md. The rows in catalogue_*.cc
// are the only declaration: the families in series.h and docs/metrics.md are built from them.
const std::vector<MetricInfo>& MetricCatalogue();

// Returns "counter", "gauge" or "histogram".
std::string KindName(MetricKind kind);

// Returns null if there is no such metric.
const MetricInfo* FindMetric(std::string_view name);

// Returns the text of docs/metrics.md.
std::string MetricCatalogueAsMarkdown();

}  // namespace genesis
