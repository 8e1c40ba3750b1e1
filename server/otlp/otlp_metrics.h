#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/text/json.h"

namespace genesis {

// Returns the body of an export of the metrics at `now`, in the JSON form of OTLP 1.x
// (opentelemetry.proto.metrics.v1). Names and labels are those of /metrics. Counters and histograms
// are cumulative since `start`. Values that are not finite are left out.
std::string MetricsBody(const Json& resource, const std::vector<prometheus::MetricFamily>& families,
                        absl::Time start, absl::Time now);

}  // namespace genesis
