// Trace contexts, spans of jobs and the JSON form of metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/timestamp.h"
#include "server/base/trace_context.h"
#include "server/otlp/job_spans.h"
#include "server/otlp/otlp_metrics.h"

namespace genesis {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using training::v1::Job;
using training::v1::JobEvent;
using training::v1::JobState;

constexpr char kCaller[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Traceparent, IsParsedAsW3cSays) {
  const auto parsed = ParseTraceparent(kCaller);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(parsed->span_id, "b7ad6b7169203331");
  EXPECT_TRUE(parsed->sampled);
  EXPECT_FALSE(
      ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")->sampled);
  // A later version may be longer.
  EXPECT_TRUE(ParseTraceparent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
}

TEST(Traceparent, IsIgnoredIfMalformed) {
  for (const char* const bad :
       {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
        "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319\n-b7ad6b7169203331-01"}) {
    EXPECT_FALSE(ParseTraceparent(bad)) << bad;
  }
}

// A job and its events, one every ten seconds.
class JobSpansTest : public testing::Test {
 protected:
  JobSpansTest() {
    job_.set_id("walker");
    job_.set_owner("ann");
    job_.set_traceparent(kCaller);
    *job_.mutable_create_time() = ToTimestamp(absl::FromUnixSeconds(1000));
  }
  JobEvent& Add() {
    JobEvent& event = events_.emplace_back();
    event.set_sequence(static_cast<int64_t>(events_.size()));
    *event.mutable_time() =
        ToTimestamp(absl::FromUnixSeconds(1000 + 10 * (static_cast<int64_t>(events_.size()) - 1)));
    return event;
  }
  std::vector<Json> Move(JobState to, const std::string& reason) {
    JobEvent& event = Add();
    event.mutable_state_changed()->set_to(to);
    event.mutable_state_changed()->set_reason(reason);
    return SpansEndedByLast(job_, events_);
  }

  Job job_;
  std::vector<JobEvent> events_;
};

TEST_F(JobSpansTest, EachStayInAStateIsASpanBelowThatOfTheJob) {
  EXPECT_THAT(Move(training::v1::JOB_STATE_QUEUED, "accepted"), IsEmpty());
  const std::vector<Json> queued = Move(training::v1::JOB_STATE_STARTING, "worker 7");
  ASSERT_THAT(queued, SizeIs(1));
  EXPECT_EQ(queued[0]["name"], "genesis.job.queued");
  EXPECT_EQ(queued[0]["startTimeUnixNano"], "1000000000000");
  EXPECT_EQ(queued[0]["endTimeUnixNano"], "1010000000000");
  EXPECT_EQ(queued[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
  Move(training::v1::JOB_STATE_RUNNING, "started");
  Add().mutable_evaluated()->set_step(50);
  Add().mutable_incident()->set_rule("overflow");
  const std::vector<Json> ended = Move(training::v1::JOB_STATE_SUCCEEDED, "all steps done");
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_EQ(ended[0]["name"], "genesis.job.running");
  ASSERT_THAT(ended[0]["events"], SizeIs(2));
  EXPECT_EQ(ended[0]["events"][0]["name"], "evaluation");
  EXPECT_EQ(ended[0]["events"][0]["timeUnixNano"], "1030000000000");
  EXPECT_EQ(ended[0]["events"][1]["name"], "incident");
  EXPECT_EQ(ended[1]["name"], "genesis.job");
  EXPECT_EQ(ended[1]["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(ended[1]["status"]["code"], 1);
  for (const Json& state : {queued[0], ended[0]}) {
    EXPECT_EQ(state["parentSpanId"], ended[1]["spanId"]);
    EXPECT_NE(state["spanId"], ended[1]["spanId"]);
  }
  EXPECT_NE(queued[0]["spanId"], ended[0]["spanId"]);
  // The IDs are the same when a restarted daemon makes the span again.
  EXPECT_EQ(SpansEndedByLast(job_, events_)[0]["spanId"], ended[0]["spanId"]);
}

TEST_F(JobSpansTest, TheFirstStepAndEachCheckpointAreSpans) {
  Move(training::v1::JOB_STATE_RUNNING, "started");
  *job_.mutable_first_step_time() = ToTimestamp(absl::FromUnixSeconds(1004));
  JobEvent& written = Add();
  written.mutable_checkpoint_written()->set_id("walker-step-50");
  written.mutable_checkpoint_written()->set_step(50);
  written.mutable_checkpoint_written()->set_write_seconds(2.5);
  const std::vector<Json> checkpoint = SpansOfCheckpoint(job_, written);
  ASSERT_THAT(checkpoint, SizeIs(1));
  EXPECT_EQ(checkpoint[0]["name"], "genesis.job.checkpoint");
  EXPECT_EQ(checkpoint[0]["startTimeUnixNano"], "1007500000000");
  EXPECT_EQ(checkpoint[0]["endTimeUnixNano"], "1010000000000");
  const std::vector<Json> left = Move(training::v1::JOB_STATE_RECOVERING, "worker is gone");
  ASSERT_THAT(left, SizeIs(2));
  EXPECT_EQ(left[1]["name"], "genesis.job.first_step");
  EXPECT_EQ(left[1]["parentSpanId"], left[0]["spanId"]);
  EXPECT_EQ(left[1]["endTimeUnixNano"], "1004000000000");
  // The next attempt has made no step.
  Move(training::v1::JOB_STATE_RUNNING, "again");
  const std::vector<Json> ended = Move(training::v1::JOB_STATE_CANCELLED, "by ann");
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_EQ(ended[1]["name"], "genesis.job");
  EXPECT_EQ(checkpoint[0]["parentSpanId"], ended[1]["spanId"]);
}

TEST_F(JobSpansTest, AFailedJobIsAnErrorAndManyEventsAreBounded) {
  Move(training::v1::JOB_STATE_RUNNING, "started");
  for (int i = 0; i < 300; ++i) Add().mutable_evaluated()->set_step(i);
  job_.mutable_failure()->set_message("loss is NaN");
  const std::vector<Json> ended = Move(training::v1::JOB_STATE_FAILED, "loss is NaN");
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_THAT(ended[0]["events"], SizeIs(128));
  EXPECT_EQ(ended[0]["droppedEventsCount"], 300 - 128);
  EXPECT_EQ(ended[1]["status"]["code"], 2);
  EXPECT_EQ(ended[1]["status"]["message"], "loss is NaN");
}

TEST_F(JobSpansTest, AnUnsampledTraceHasNoSpansAndAJobWithoutCallerBeginsATrace) {
  job_.set_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
  Move(training::v1::JOB_STATE_QUEUED, "accepted");
  EXPECT_THAT(Move(training::v1::JOB_STATE_CANCELLED, "by ann"), IsEmpty());
  job_.clear_traceparent();
  const std::vector<Json> ended = SpansEndedByLast(job_, events_);
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_FALSE(ended[1].contains("parentSpanId"));
  EXPECT_THAT(ended[1]["traceId"].get<std::string>(), SizeIs(32));
  Job later = job_;
  later.mutable_create_time()->set_seconds(2000);
  EXPECT_NE(TraceOf(later).trace_id, TraceOf(job_).trace_id) << "a later job of the same ID";
}

TEST(OtlpMetrics, AreThoseOfPrometheus) {
  prometheus::ClientMetric counted;
  counted.label = {{"state", "FAILED"}};
  counted.counter.value = 3;
  prometheus::ClientMetric measured;
  measured.histogram = {.sample_count = 6,
                        .sample_sum = 9.5,
                        .bucket = {{1, 0.5}, {4, 2}, {6, std::numeric_limits<double>::infinity()}}};
  prometheus::ClientMetric unknown;
  unknown.gauge.value = std::numeric_limits<double>::quiet_NaN();
  const std::string body =
      MetricsBody(Json::object(),
                  {{"jobs_total", "Jobs.", prometheus::MetricType::Counter, {counted}},
                   {"wait_seconds", "Waits.", prometheus::MetricType::Histogram, {measured}},
                   {"loss", "Loss.", prometheus::MetricType::Gauge, {unknown}}},
                  absl::FromUnixSeconds(1), absl::FromUnixSeconds(2));
  const Json metrics = Json::parse(body)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
  ASSERT_THAT(metrics, SizeIs(3));
  const Json& sum = metrics[0]["sum"];
  EXPECT_EQ(sum["isMonotonic"], true);
  EXPECT_EQ(sum["aggregationTemporality"], 2);
  EXPECT_EQ(sum["dataPoints"][0]["asDouble"], 3);
  EXPECT_EQ(sum["dataPoints"][0]["startTimeUnixNano"], "1000000000");
  EXPECT_EQ(sum["dataPoints"][0]["attributes"][0]["key"], "state");
  const Json& histogram = metrics[1]["histogram"]["dataPoints"][0];
  EXPECT_THAT(histogram["bucketCounts"], ElementsAre("1", "3", "2"));
  EXPECT_THAT(histogram["explicitBounds"], ElementsAre(0.5, 2));
  EXPECT_EQ(histogram["count"], "6");
  EXPECT_THAT(metrics[2]["gauge"]["dataPoints"], IsEmpty());
}

}  // namespace
}  // namespace genesis
