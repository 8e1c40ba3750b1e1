#include "server/otlp/otlp_metrics.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/otlp/job_spans.h"

namespace genesis {
namespace {

// AGGREGATION_TEMPORALITY_CUMULATIVE.
constexpr int kCumulative = 2;

// The start and the end of an export's interval, as decimal nanoseconds.
struct Interval {
  std::string start;
  std::string now;
};

Json Point(const prometheus::ClientMetric& metric, const Interval& interval, bool cumulative) {
  Json attributes = Json::array();
  for (const auto& label : metric.label) {
    attributes.push_back(OtlpAttribute(label.name, label.value));
  }
  Json point = {{"attributes", std::move(attributes)}};
  if (cumulative) point["startTimeUnixNano"] = interval.start;
  point["timeUnixNano"] = interval.now;
  return point;
}

// Converts a histogram. Prometheus buckets are cumulative, those of OTLP are not, and OTLP leaves
// out the last bound, which is infinity.
void FillHistogram(const prometheus::ClientMetric::Histogram& histogram, Json& point) {
  Json counts = Json::array();
  Json bounds = Json::array();
  uint64_t below = 0;
  for (const auto& bucket : histogram.bucket) {
    counts.push_back(absl::StrCat(bucket.cumulative_count - below));
    below = bucket.cumulative_count;
    if (std::isfinite(bucket.upper_bound)) bounds.push_back(bucket.upper_bound);
  }
  point["count"] = absl::StrCat(histogram.sample_count);
  if (std::isfinite(histogram.sample_sum)) point["sum"] = histogram.sample_sum;
  point["bucketCounts"] = std::move(counts);
  point["explicitBounds"] = std::move(bounds);
}

Json Metric(const prometheus::MetricFamily& family, const Interval& interval) {
  using prometheus::MetricType;
  const bool histogram = family.type == MetricType::Histogram;
  const bool counter = family.type == MetricType::Counter;
  Json points = Json::array();
  for (const prometheus::ClientMetric& each : family.metric) {
    Json point = Point(each, interval, counter || histogram);
    if (histogram) {
      FillHistogram(each.histogram, point);
    } else {
      const double value = counter ? each.counter.value : each.gauge.value;
      if (!std::isfinite(value)) continue;
      point["asDouble"] = value;
    }
    points.push_back(std::move(point));
  }
  Json data = {{"dataPoints", std::move(points)}};
  if (counter || histogram) data["aggregationTemporality"] = kCumulative;
  if (counter) data["isMonotonic"] = true;
  const char* const kind = histogram ? "histogram" : counter ? "sum" : "gauge";
  return {{"name", family.name}, {"description", family.help}, {kind, std::move(data)}};
}

}  // namespace

std::string MetricsBody(const Json& resource, const std::vector<prometheus::MetricFamily>& families,
                        absl::Time start, absl::Time now) {
  const Interval interval = {absl::StrCat(absl::ToUnixNanos(start)),
                             absl::StrCat(absl::ToUnixNanos(now))};
  Json metrics = Json::array();
  for (const prometheus::MetricFamily& family : families) {
    if (!family.metric.empty()) metrics.push_back(Metric(family, interval));
  }
  const Json body = {{"resourceMetrics",
                      {{{"resource", resource},
                        {"scopeMetrics",
                         {{{"scope", {{"name", "genesis"}}}, {"metrics", std::move(metrics)}}}}}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace genesis
