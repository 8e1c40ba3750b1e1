#include "metrics/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace genesis {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Family(const char* name, MetricType type, ClientMetric metric) {
  metric.label = {{"deployment", "stable"}};
  return {name, "What it is.", type, {metric}};
}

TEST(OpenMetrics, FamiliesOfCountersAreNamedWithoutTheSuffixOfTheirSamples) {
  ClientMetric counted;
  counted.counter.value = 12;
  EXPECT_EQ(Expose({Family("genesis_things_total", MetricType::Counter, counted)},
                   MetricsFormat::kOpenMetrics),
            "# HELP genesis_things What it is.\n"
            "# TYPE genesis_things counter\n"
            "genesis_things_total{deployment=\"stable\"} 12\n"
            "# EOF\n");
}

TEST(OpenMetrics, BoundsOfBucketsAreDecimalNumbersAndTheLastIsInfinite) {
  ClientMetric timed;
  timed.histogram.sample_count = 3;
  timed.histogram.sample_sum = 7.25;
  timed.histogram.bucket = {{1, 0.5}, {2, 5}, {3, std::numeric_limits<double>::infinity()}};
  EXPECT_EQ(Expose({Family("genesis_wait_seconds", MetricType::Histogram, timed)},
                   MetricsFormat::kOpenMetrics),
            "# HELP genesis_wait_seconds What it is.\n"
            "# TYPE genesis_wait_seconds histogram\n"
            "genesis_wait_seconds_bucket{deployment=\"stable\",le=\"0.5\"} 1\n"
            "genesis_wait_seconds_bucket{deployment=\"stable\",le=\"5.0\"} 2\n"
            "genesis_wait_seconds_bucket{deployment=\"stable\",le=\"+Inf\"} 3\n"
            "genesis_wait_seconds_sum{deployment=\"stable\"} 7.25\n"
            "genesis_wait_seconds_count{deployment=\"stable\"} 3\n"
            "# EOF\n");
}

TEST(OpenMetrics, TextIsEscapedAndNumbersThatAreNoneAreNamed) {
  ClientMetric odd;
  odd.gauge.value = std::numeric_limits<double>::quiet_NaN();
  MetricFamily family = Family("genesis_odd", MetricType::Gauge, odd);
  family.help = "A \"word\" and\na \\.";
  family.metric.front().label = {{"why", "a\"b\\c\nd"}};
  EXPECT_EQ(Expose({family}, MetricsFormat::kOpenMetrics),
            "# HELP genesis_odd A \\\"word\\\" and\\na \\\\.\n"
            "# TYPE genesis_odd gauge\n"
            "genesis_odd{why=\"a\\\"b\\\\c\\nd\"} NaN\n"
            "# EOF\n");
}

TEST(OpenMetrics, NumbersReadBackAsTheyWere) {
  ClientMetric large;
  large.gauge.value = 1763760000.125;
  EXPECT_THAT(
      Expose({Family("genesis_time", MetricType::Gauge, large)}, MetricsFormat::kOpenMetrics),
      testing::HasSubstr("} 1763760000.125\n"));
}

TEST(Exposition, SaysWhichFormatItIs) {
  EXPECT_EQ(ContentTypeOf(MetricsFormat::kText), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(ContentTypeOf(MetricsFormat::kOpenMetrics),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

}  // namespace
}  // namespace genesis
