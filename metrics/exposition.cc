#include "metrics/exposition.h"

#include <prometheus/text_serializer.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}});
}

// Returns the shortest text that parses to the same number.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// OpenMetrics requires bounds such as "1.0" instead of "1", so that equal bounds match as text.
std::string Bound(double value) {
  std::string text = Number(value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void AppendSample(const std::string& name, const Labels& labels, const std::string& bound,
                  const std::string& value, std::string* page) {
  absl::StrAppend(page, name, "{");
  const char* comma = "";
  for (const auto& label : labels) {
    absl::StrAppend(page, comma, label.name, "=\"", Escaped(label.value), "\"");
    comma = ",";
  }
  if (!bound.empty()) absl::StrAppend(page, comma, "le=\"", bound, "\"");
  absl::StrAppend(page, "} ", value, "\n");
}

void AppendHistogram(const std::string& name, const prometheus::ClientMetric& metric,
                     std::string* page) {
  const auto& histogram = metric.histogram;
  bool has_infinity = false;
  for (const auto& bucket : histogram.bucket) {
    has_infinity = has_infinity || std::isinf(bucket.upper_bound);
    AppendSample(name + "_bucket", metric.label, Bound(bucket.upper_bound),
                 absl::StrCat(bucket.cumulative_count), page);
  }
  const std::string count = absl::StrCat(histogram.sample_count);
  if (!has_infinity) AppendSample(name + "_bucket", metric.label, "+Inf", count, page);
  AppendSample(name + "_sum", metric.label, "", Number(histogram.sample_sum), page);
  AppendSample(name + "_count", metric.label, "", count, page);
}

void AppendFamily(const prometheus::MetricFamily& family, std::string* page) {
  const bool counter = family.type == prometheus::MetricType::Counter;
  const bool histogram = family.type == prometheus::MetricType::Histogram;
  const std::string name(counter ? absl::StripSuffix(family.name, "_total") : family.name);
  absl::StrAppend(page, "# HELP ", name, " ", Escaped(family.help), "\n# TYPE ", name, " ",
                  counter     ? "counter"
                  : histogram ? "histogram"
                              : "gauge",
                  "\n");
  for (const prometheus::ClientMetric& metric : family.metric) {
    if (histogram) {
      AppendHistogram(name, metric, page);
    } else {
      const double value = counter ? metric.counter.value : metric.gauge.value;
      AppendSample(family.name, metric.label, "", Number(value), page);
    }
  }
}

}  // namespace

std::string ContentTypeOf(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string Expose(const std::vector<prometheus::MetricFamily>& families, MetricsFormat format) {
  if (format == MetricsFormat::kText) {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, families);
    return text.str();
  }
  std::string page;
  for (const prometheus::MetricFamily& family : families) AppendFamily(family, &page);
  return page + "# EOF\n";
}

}  // namespace genesis
