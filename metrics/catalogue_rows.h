#pragma once

#include <vector>

#include "metrics/catalogue.h"

namespace genesis {

// Return the parts of MetricCatalogue(). Each is a section of docs/metrics.md.
std::vector<MetricInfo> TrainingMetrics();
std::vector<MetricInfo> PrecisionMetrics();
std::vector<MetricInfo> JobMetrics();
std::vector<MetricInfo> MachineMetrics();
std::vector<MetricInfo> DaemonMetrics();

}  // namespace genesis
