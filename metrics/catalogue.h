#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace genesis {

enum class MetricKind { kCounter, kGauge, kHistogram };

// One metric as operators see it. The label `deployment` is on every series and not repeated here.
struct MetricInfo {
  std::string name;
  MetricKind kind;
  std::string unit;  // Base unit for display; "1" for a plain number.
  std::vector<std::string> labels;
  std::string help;
  std::vector<double> buckets;  // Upper bounds, histograms only.
};

// Every metric of the daemon, in the order of docs/metrics.md. Its rows, in catalogue_*.cc, are the
// only declaration: metrics.cc builds its families from it and docs/metrics.md is printed from it.
const std::vector<MetricInfo>& MetricCatalogue();

// "counter", "gauge", "histogram".
std::string KindName(MetricKind kind);

// Returns null if there is no such metric.
const MetricInfo* FindMetric(std::string_view name);

// Returns the text of docs/metrics.md.
std::string MetricCatalogueAsMarkdown();

}  // namespace genesis
