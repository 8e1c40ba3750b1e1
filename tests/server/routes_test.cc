#include "server/pages/routes.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "server/http/http_server.h"
#include "tests/server/http_client.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

using Fields = google::protobuf::Map<std::string, google::protobuf::Value>;

Fields Parse(const HttpResponse& response) {
  google::protobuf::Struct parsed;
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(response.body, &parsed).ok())
      << response.body;
  return parsed.fields();
}

training::v1::Job RunningJob() {
  training::v1::Job job;
  job.set_id("pendulum-1");
  job.set_state(training::v1::JOB_STATE_RUNNING);
  job.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
  job.mutable_precision()->set_requested(training::v1::PRECISION_MODE_MIXED_FP16);
  job.mutable_precision()->set_reason("MIXED_BF16: \"because\"");
  job.mutable_precision()->set_device("cpu");
  job.mutable_progress()->set_step(40);
  job.mutable_progress()->set_total_steps(100);
  job.mutable_progress()->set_loss(0.125);
  return job;
}

// Pages of a daemon with one running and one queued job, newest first.
class Routes : public testing::Test {
 protected:
  Routes() {
    readiness_.ready = true;
    info_.set_version("1.2.3");
    info_.set_reduced_precision_enabled(true);
    info_.set_reduced_precision_reason("enabled by ENABLE_FP16_TRAINING=true");
    info_.set_data_dir("/data");
    info_.set_deployment("canary");
    info_.mutable_start_time()->set_seconds(1700000000);
    stats_.set_fp16_enabled_runtime(true);
    stats_.set_overflow_rate(0.25);
    stats_.set_training_steps(40);
    stats_.set_current_scale(65536);
    stats_.set_samples(5120);
    (*stats_.mutable_jobs_by_state())["RUNNING"] = 1;
    (*stats_.mutable_jobs_by_state())["QUEUED"] = 1;
    stats_.set_slots(2);
    training::v1::Job queued;
    queued.set_id("pendulum-2");
    queued.set_state(training::v1::JOB_STATE_QUEUED);
    jobs_ = {queued, RunningJob()};
    training::v1::HistoryRow row;
    row.set_job_id("pendulum-1");
    row.set_step(40);
    row.set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
    row.set_loss(0.125);
    row.set_loss_scale(1024);
    row.set_overflow_steps(3);
    training::v1::HistoryRow waiting;
    waiting.set_job_id("pendulum-2");
    history_ = {row, waiting};
  }

  HttpResponse Get(const std::string& path, const std::string& method = "GET") {
    RouteSources sources;
    sources.readiness = [this] { return readiness_; };
    sources.stats = [this] { return stats_; };
    sources.info = [this] { return info_; };
    sources.recent_jobs = [this] { return jobs_; };
    sources.history = [this] { return history_; };
    sources.metrics = [](MetricsFormat format) {
      return std::string(format == MetricsFormat::kText ? "genesis_ready 1\n"
                                                        : "genesis_ready 1\n# EOF\n");
    };
    sources.on_response = [this](const std::string& counted, int status) {
      counted_.emplace_back(counted, status);
    };
    return MakeRoutes(std::move(sources))({.method = method, .path = path, .query = ""});
  }

  Readiness readiness_;
  training::v1::GetServerInfoResponse info_;
  training::v1::StatsResponse stats_;
  std::vector<training::v1::Job> jobs_;
  std::vector<training::v1::HistoryRow> history_;
  std::vector<std::pair<std::string, int>> counted_;
};

TEST_F(Routes, MetricsAreServedInPrometheusTextFormat) {
  const HttpResponse response = Get("/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(response.body, "genesis_ready 1\n");
}

TEST_F(Routes, HealthIsOkEvenWhenNotReady) {
  readiness_.ready = false;
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/healthz").body, "ok\n");
}

TEST_F(Routes, ReadyIs200WithTheFaultsThatDoNotStopIt) {
  readiness_.notes = {"ENABLE_FP16_TRAINING is \"False\"; accepted are true and false"};
  const HttpResponse response = Get("/readyz");
  EXPECT_EQ(response.status, 200);
  const Fields page = Parse(response);
  EXPECT_TRUE(page.at("ready").bool_value());
  EXPECT_EQ(page.at("reasons").list_value().values_size(), 0);
  EXPECT_THAT(page.at("notes").list_value().values(0).string_value(), HasSubstr("\"False\""));
}

TEST_F(Routes, NotReadyIs503WithEveryReason) {
  readiness_ = {.ready = false, .reasons = {"recovering jobs", "no worker is warm"}, .notes = {}};
  const HttpResponse response = Get("/readyz");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Parse(response).at("reasons").list_value().values_size(), 2);
}

TEST_F(Routes, StatusTellsTheGateAndTheJobs) {
  const Fields page = Parse(Get("/api/training/status"));
  EXPECT_TRUE(page.at("fp16_enabled_runtime").bool_value());
  EXPECT_TRUE(page.at("fp16_allowed").bool_value());
  EXPECT_EQ(page.at("fp16_reason").string_value(), "enabled by ENABLE_FP16_TRAINING=true");
  const Fields server = page.at("server").struct_value().fields();
  EXPECT_EQ(server.at("version").string_value(), "1.2.3");
  EXPECT_EQ(server.at("start_time").string_value(), "2023-11-14T22:13:20Z");
  EXPECT_EQ(server.at("deployment").string_value(), "canary");
  EXPECT_TRUE(page.at("readiness").struct_value().fields().at("ready").bool_value());
  EXPECT_EQ(page.at("jobs_by_state").struct_value().fields().at("RUNNING").number_value(), 1);
  const auto jobs = page.at("recent_jobs").list_value();
  ASSERT_EQ(jobs.values_size(), 2);
  const Fields job = jobs.values(1).struct_value().fields();
  EXPECT_EQ(job.at("id").string_value(), "pendulum-1");
  EXPECT_EQ(job.at("state").string_value(), "RUNNING");
  EXPECT_EQ(job.at("step").number_value(), 40);
  EXPECT_EQ(job.at("total_steps").number_value(), 100);
  EXPECT_EQ(job.at("loss").number_value(), 0.125);
  const Fields precision = job.at("precision").struct_value().fields();
  EXPECT_EQ(precision.at("effective").string_value(), "MIXED_BF16");
  EXPECT_EQ(precision.at("requested").string_value(), "MIXED_FP16");
  EXPECT_EQ(precision.at("reason").string_value(), "MIXED_BF16: \"because\"");
}

TEST_F(Routes, WhatAQueuedJobDoesNotKnowYetIsNull) {
  const auto jobs = Parse(Get("/api/training/status")).at("recent_jobs").list_value();
  const Fields job = jobs.values(0).struct_value().fields();
  EXPECT_EQ(job.at("state").string_value(), "QUEUED");
  EXPECT_TRUE(job.at("loss").has_null_value());
  EXPECT_TRUE(job.at("precision").has_null_value());
}

TEST_F(Routes, StatsHaveTheNamesThatScriptsRead) {
  const Fields page = Parse(Get("/api/training/stats"));
  const Fields fp16 = page.at("_fp16_stats").struct_value().fields();
  EXPECT_TRUE(fp16.at("fp16_enabled_runtime").bool_value());
  EXPECT_EQ(fp16.at("overflow_rate").number_value(), 0.25);
  EXPECT_EQ(fp16.at("training_steps").number_value(), 40);
  EXPECT_EQ(fp16.at("current_scale").number_value(), 65536);
  EXPECT_EQ(page.at("samples").number_value(), 5120);
  EXPECT_EQ(page.at("slots").number_value(), 2);
  EXPECT_EQ(page.at("busy_workers").number_value(), 0);
  EXPECT_EQ(page.at("jobs_by_state").struct_value().fields().at("QUEUED").number_value(), 1);
}

TEST_F(Routes, WhatMayRunIsToldApartFromWhatRuns) {
  stats_.set_fp16_enabled_runtime(false);
  stats_.clear_current_scale();
  const Fields status = Parse(Get("/api/training/status"));
  EXPECT_FALSE(status.at("fp16_enabled_runtime").bool_value());
  EXPECT_TRUE(status.at("fp16_allowed").bool_value());
  const Fields stats = Parse(Get("/api/training/stats"));
  EXPECT_TRUE(stats.at("_fp16_stats").struct_value().fields().at("current_scale").has_null_value());
}

TEST_F(Routes, TrainingHistoryEndsWithTheNewestRowAndLeavesOutThoseWithoutAStep) {
  training::v1::HistoryRow newer = history_.front();
  newer.set_step(80);
  newer.clear_loss();  // Stands for a loss of NaN.
  newer.set_held_out_loss(0.5);
  history_.push_back(newer);
  const auto history = Parse(Get("/api/training/stats")).at("training_history").list_value();
  ASSERT_EQ(history.values_size(), 2);
  const Fields oldest = history.values(0).struct_value().fields();
  EXPECT_EQ(oldest.at("step").number_value(), 40);
  EXPECT_EQ(oldest.at("loss").number_value(), 0.125);
  EXPECT_EQ(oldest.at("mode").string_value(), "MIXED_FP16");
  EXPECT_EQ(oldest.at("skipped_steps").number_value(), 3);
  EXPECT_TRUE(oldest.at("held_out_loss").has_null_value());
  const Fields newest = history.values(1).struct_value().fields();
  EXPECT_TRUE(newest.at("loss").has_null_value());
  EXPECT_EQ(newest.at("held_out_loss").number_value(), 0.5);
}

TEST_F(Routes, TheIndexListsEveryPath) {
  const HttpResponse index = Get("/");
  EXPECT_EQ(index.status, 200);
  EXPECT_THAT(index.body, AllOf(HasSubstr("1.2.3"), HasSubstr("/metrics"), HasSubstr("/healthz"),
                                HasSubstr("/readyz"), HasSubstr("/api/training/status"),
                                HasSubstr("/api/training/stats")));
}

TEST_F(Routes, AnotherPathIs404AndSaysWhatExists) {
  const HttpResponse response = Get("/api/training/state");
  EXPECT_EQ(response.status, 404);
  EXPECT_THAT(response.body, AllOf(HasSubstr("/api/training/state\n"), HasSubstr("/readyz")));
}

TEST_F(Routes, AnotherMethodIs405AndSaysWhatWorks) {
  const HttpResponse response = Get("/metrics", "POST");
  EXPECT_EQ(response.status, 405);
  EXPECT_THAT(response.body, HasSubstr("GET or HEAD"));
}

TEST_F(Routes, EveryAnswerIsCountedWithoutUnboundedNames) {
  Get("/readyz");
  Get("/metrics", "DELETE");
  Get("/wp-admin");
  EXPECT_THAT(counted_,
              ElementsAre(Pair("/readyz", 200), Pair("/metrics", 405), Pair("other", 404)));
}

TEST_F(Routes, AnswersThroughTheServer) {
  RouteSources sources;
  sources.info = [this] { return info_; };
  const auto server = HttpServer::Start("127.0.0.1:0", Pages(MakeRoutes(std::move(sources))));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(HttpExchange((*server)->port(), "GET", "/healthz?verbose"),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(HttpExchange((*server)->port(), "PUT", "/metrics"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
}

}  // namespace
}  // namespace genesis
