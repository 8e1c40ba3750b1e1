#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace genesis {

enum class MetricsFormat { kText, kOpenMetrics };

// Returns the Content-Type of a format.
std::string ContentTypeOf(MetricsFormat format);

// Returns the families as a page, in their order: Prometheus text format 0.0.4, or OpenMetrics
// 1.0.0, in which counter families are named without _total, bucket bounds are decimal numbers, and
// the page ends with "# EOF".
std::string Expose(const std::vector<prometheus::MetricFamily>& families, MetricsFormat format);

}  // namespace genesis
