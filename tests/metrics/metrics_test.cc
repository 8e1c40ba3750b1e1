#include "metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "metrics/catalogue.h"
#include "tests/metrics/metrics_of_jobs.h"

namespace genesis {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

// Returns the value of a series as printed on the page; empty if the series is missing.
std::string Value(const Metrics& metrics, const std::string& series) {
  for (const std::string& line : Lines(metrics.RenderText())) {
    if (line.starts_with(series + " ")) return line.substr(series.size() + 1);
  }
  return "";
}

// Returns a report with every field set.
training::v1::Steps SomeSteps() {
  training::v1::Steps steps;
  steps.set_new_steps(10);
  steps.set_new_samples(1280);
  steps.set_new_reduced_precision_steps(10);
  steps.set_new_skipped_steps(2);
  steps.set_new_overflow_steps(2);
  steps.set_new_scale_growths(1);
  for (int i = 0; i < 10; ++i) steps.add_step_seconds(0.002f);
  steps.mutable_progress()->set_step(10);
  steps.mutable_progress()->set_loss(0.25);
  steps.mutable_progress()->set_grad_norm(1.5);
  steps.mutable_progress()->set_loss_scale(32768);
  return steps;
}

GpuStatistics SomeGpu() {
  GpuStatistics gpu;
  gpu.device = "cuda:0";
  gpu.memory_used_bytes = 1 << 30;
  gpu.memory_total_bytes = int64_t{80} << 30;
  gpu.utilization_ratio = 0.93;
  gpu.power_watts = 612.5;
  gpu.temperature_celsius = 71;
  gpu.throttle_reasons = {"sw_power_cap"};
  return gpu;
}

// Creates every possible series.
void Fill(MetricsOfJobs& metrics) {
  metrics.JobMoved(training::v1::JOB_STATE_UNSPECIFIED, training::v1::JOB_STATE_QUEUED);
  metrics.JobMoved(training::v1::JOB_STATE_QUEUED, training::v1::JOB_STATE_RUNNING);
  metrics.JobFinished(training::v1::JOB_STATE_SUCCEEDED, training::v1::FAILURE_CAUSE_UNSPECIFIED,
                      12);
  metrics.JobFinished(training::v1::JOB_STATE_FAILED, training::v1::FAILURE_CAUSE_OUT_OF_MEMORY, 3);
  training::v1::Steps steps = SomeSteps();
  steps.set_cuda_memory_allocated_bytes(1 << 20);
  steps.set_cuda_memory_reserved_bytes(1 << 22);
  steps.set_cuda_memory_peak_bytes(1 << 21);
  steps.mutable_progress()->set_baseline_loss(0.25);
  steps.mutable_progress()->set_divergence_ratio(0.02);
  steps.mutable_progress()->set_speed_ratio(1.5);
  metrics.JobBegins("job", {}, /*fp32_peak_bytes=*/1 << 22);
  metrics.Steps("job", steps, training::v1::PRECISION_MODE_MIXED_FP16);
  metrics.PrecisionChanged("overflow");
  metrics.IncidentSeen("overflow_warning");
  metrics.Evaluated("job", 0.5);
  metrics.CheckpointWritten(0.2, 4096);
  metrics.CheckpointFailed();
  metrics.SetUnprotectedSince(2e9);
  metrics.SetQuarantined("cuda:0", true);
  metrics.SetVolume("data", VolumeStatistics{.free = 10, .size = 20});
  metrics.SetGpu(SomeGpu());
  metrics.HistoryRowsLost(1);
  metrics.OtlpDropped("traces", 1);
  metrics.TransitionsAppended(52);
  metrics.WorkerRestarted("crash");
  metrics.SetQueueDepth(3);
  metrics.RanksWait("other", 0.25);
  metrics.SetWorkers(1, 1, 2);
  metrics.SetGate(true, 0);
  training::v1::EffectivePrecision precision;
  precision.set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
  precision.set_device("cpu");
  metrics.SetEffectivePrecision("other", precision);
  metrics.SetReady(true);
  metrics.ConfigReloaded(true);
  metrics.SetCertificateEnd(2e9);
  metrics.ConnectionRefused("file_handles");
  metrics.AuditLineLost();
  metrics.ErrorsCaught(1);
  metrics.AddWebhookEndpoint("chat");
  metrics.WebhookAttempted("chat", "delivered");
  metrics.SetOldestWebhook(1.5);
  metrics.Request("grpc", "Train", "OK");
}

// The name, kind and labels of each metric. Every series also has the label `deployment`.
const std::vector<std::string> kFrozen = {
    "genesis_audit_lines_lost_total counter",
    "genesis_build_info gauge version",
    "genesis_caught_errors_total counter",
    "genesis_checkpoint_bytes gauge",
    "genesis_checkpoint_duration_seconds histogram",
    "genesis_checkpoint_failures_total counter",
    "genesis_checkpoints_total counter",
    "genesis_config_errors gauge",
    "genesis_config_last_reload_success gauge",
    "genesis_config_reloads_total counter result",
    "genesis_connections_refused_total counter reason",
    "genesis_cuda_memory_allocated_bytes gauge mode",
    "genesis_cuda_memory_peak_bytes gauge mode",
    "genesis_cuda_memory_reserved_bytes gauge mode",
    "genesis_cuda_memory_to_fp32_ratio gauge",
    "genesis_device_quarantined gauge device",
    "genesis_effective_precision_info gauge mode,device",
    "genesis_fp16_overflow_steps_total counter",
    "genesis_fp16_training_steps_total counter",
    "genesis_fp32_baseline_loss gauge",
    "genesis_gpu_memory_total_bytes gauge device",
    "genesis_gpu_memory_used_bytes gauge device",
    "genesis_gpu_power_watts gauge device",
    "genesis_gpu_temperature_celsius gauge device",
    "genesis_gpu_throttled gauge device,reason",
    "genesis_gpu_utilization_ratio gauge device",
    "genesis_grad_norm gauge",
    "genesis_held_out_loss gauge",
    "genesis_history_rows_lost_total counter",
    "genesis_incidents_total counter rule",
    "genesis_job_loss_divergence_ratio gauge job_id",
    "genesis_job_overflow_steps_total counter job_id",
    "genesis_job_rank_wait_ratio gauge job_id",
    "genesis_job_step_speed_to_fp32_ratio gauge job_id",
    "genesis_job_steps_total counter job_id",
    "genesis_job_training_loss gauge job_id",
    "genesis_jobs gauge state",
    "genesis_jobs_finished_total counter state,cause",
    "genesis_last_step_timestamp_seconds gauge",
    "genesis_loss_divergence_ratio gauge",
    "genesis_loss_scale gauge",
    "genesis_optimizer_steps_total counter mode",
    "genesis_otlp_dropped_total counter signal",
    "genesis_precision_changes_total counter trigger",
    "genesis_queue_depth gauge",
    "genesis_rank_wait_ratio gauge",
    "genesis_ready gauge",
    "genesis_reduced_precision_enabled gauge",
    "genesis_requests_total counter protocol,method,code",
    "genesis_scale_backoffs_total counter",
    "genesis_scale_growths_total counter",
    "genesis_skipped_steps_total counter reason",
    "genesis_step_duration_seconds histogram mode",
    "genesis_step_speed_to_fp32_ratio gauge",
    "genesis_tls_certificate_not_after_timestamp_seconds gauge",
    "genesis_training_duration_seconds histogram",
    "genesis_training_loss gauge",
    "genesis_training_samples_total counter",
    "genesis_training_success_total counter",
    "genesis_training_total counter",
    "genesis_transitions_appended_total counter",
    "genesis_unprotected_since_timestamp_seconds gauge",
    "genesis_volume_free_bytes gauge volume",
    "genesis_volume_size_bytes gauge volume",
    "genesis_webhook_deliveries_total counter endpoint,outcome",
    "genesis_webhook_oldest_pending_seconds gauge",
    "genesis_worker_restarts_total counter reason",
    "genesis_worker_slots gauge",
    "genesis_workers gauge state",
    "process_cpu_seconds_total counter",
    "process_max_fds gauge",
    "process_open_fds gauge",
    "process_resident_memory_bytes gauge",
    "process_start_time_seconds gauge",
};

TEST(MetricNames, AreFrozenBecauseDashboardsAndAlertsTypeThem) {
  std::vector<std::string> rows;
  for (const MetricInfo& metric : MetricCatalogue()) {
    std::string row = metric.name + " " + KindName(metric.kind);
    for (size_t i = 0; i < metric.labels.size(); ++i) {
      row += (i == 0 ? " " : ",") + metric.labels[i];
    }
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_THAT(rows, ElementsAreArray(kFrozen));
}

TEST(MetricNames, EveryNameOfTheCatalogueIsRendered) {
  MetricsOfJobs metrics("stable", "1.2.3");
  Fill(metrics);
  const std::string text = metrics.RenderText();
  for (const MetricInfo& metric : MetricCatalogue()) {
    EXPECT_THAT(text, HasSubstr("# HELP " + metric.name + " " + metric.help + "\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE " + metric.name + " "));
  }
}

TEST(MetricNames, EverySeriesCarriesTheDeploymentAndTheLabelsOfTheCatalogue) {
  MetricsOfJobs metrics("canary", "1.2.3");
  Fill(metrics);
  const std::regex series("([a-z0-9_]+)\\{(.*)\\} [^ ]+");
  for (const std::string& line : Lines(metrics.RenderText())) {
    if (line.starts_with("#")) continue;
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, series)) << line;
    EXPECT_THAT(match[2].str(), HasSubstr("deployment=\"canary\"")) << line;
    const std::string family =
        std::regex_replace(match[1].str(), std::regex("_(bucket|sum|count)$"), "");
    const MetricInfo* metric = FindMetric(family);
    ASSERT_NE(metric, nullptr) << line;
    for (const std::string& label : metric->labels) {
      EXPECT_THAT(match[2].str(), HasSubstr(label + "=\"")) << line;
    }
    if (family.starts_with("genesis_job_")) continue;  // Bounded, and gone with the job.
    EXPECT_THAT(match[2].str(), Not(HasSubstr("job"))) << "a job id would grow without end";
  }
}

TEST(MetricsPage, IsCleanForPromtool) {
  MetricsOfJobs metrics("stable", "1.2.3");
  Fill(metrics);
  FILE* promtool = popen(GENESIS_PROMTOOL " check metrics 2>&1", "w");
  ASSERT_NE(promtool, nullptr);
  std::fputs(metrics.RenderText().c_str(), promtool);
  const int status = pclose(promtool);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << metrics.RenderText();
}

TEST(MetricsPage, WhatWasNotMeasuredHasNoSeries) {
  MetricsOfJobs metrics("stable", "1.2.3");
  const std::string text = metrics.RenderText();
  for (const char* name :
       {"genesis_training_loss", "genesis_grad_norm", "genesis_loss_scale", "genesis_cuda_memory_",
        "genesis_fp32_baseline_loss", "genesis_gpu_", "genesis_device_quarantined",
        "genesis_volume_", "_timestamp_seconds", "genesis_checkpoint_bytes", "genesis_queue_depth",
        "genesis_ready", "genesis_effective_precision_info"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

TEST(MetricsPage, CountersStartAtZeroSoThatTheFirstFailureIsAChange) {
  MetricsOfJobs metrics("stable", "1.2.3");
  EXPECT_EQ(Value(metrics, "genesis_training_total{deployment=\"stable\"}"), "0");
  EXPECT_EQ(Value(metrics, "genesis_fp16_overflow_steps_total{deployment=\"stable\"}"), "0");
}

TEST(MetricsPage, AReportOfStepsIsCounted) {
  MetricsOfJobs metrics("stable", "1.2.3");
  metrics.Steps("job", SomeSteps(), training::v1::PRECISION_MODE_MIXED_FP16);
  metrics.Steps("job", SomeSteps(), training::v1::PRECISION_MODE_MIXED_FP16);
  const std::string all = "{deployment=\"stable\"}", mode = "{deployment=\"stable\",mode=\"fp16\"}";
  EXPECT_EQ(Value(metrics, "genesis_training_samples_total" + all), "2560");
  EXPECT_EQ(Value(metrics, "genesis_fp16_training_steps_total" + all), "20");
  EXPECT_EQ(Value(metrics, "genesis_fp16_overflow_steps_total" + all), "4");
  EXPECT_EQ(Value(metrics, "genesis_scale_growths_total" + all), "2");
  EXPECT_EQ(Value(metrics, "genesis_training_loss" + all), "0.25");
  EXPECT_EQ(Value(metrics, "genesis_grad_norm" + all), "1.5");
  EXPECT_EQ(Value(metrics, "genesis_loss_scale" + all), "32768");
  EXPECT_EQ(Value(metrics, "genesis_optimizer_steps_total" + mode), "20");
  EXPECT_EQ(Value(metrics, "genesis_step_duration_seconds_count" + mode), "20");
}

TEST(MetricsPage, OneScrapeStaysBelowAThousandSeriesHoweverManyJobsThereWere) {
  MetricsOfJobs metrics("stable", "1.2.3");
  const auto count = [&] {
    int series = 0;
    for (const std::string& line : Lines(metrics.RenderText()))
      series += line.starts_with("#") ? 0 : 1;
    return series;
  };
  const auto modes = {training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_MIXED_FP16,
                      training::v1::PRECISION_MODE_MIXED_BF16};
  const auto run_job = [&](int number) {
    metrics.Steps(std::to_string(number), SomeSteps(), training::v1::PRECISION_MODE_FP32);
    metrics.JobLeaves(std::to_string(number));
    for (const auto mode : modes) metrics.Steps("job", SomeSteps(), mode);
    const bool failed = number % 3 == 0;
    metrics.JobFinished(failed ? training::v1::JOB_STATE_FAILED : training::v1::JOB_STATE_SUCCEEDED,
                        failed ? static_cast<training::v1::FailureCause>(1 + number % 11)
                               : training::v1::FAILURE_CAUSE_UNSPECIFIED,
                        10);
    metrics.JobLeaves("job");
  };
  Fill(metrics);
  for (int gpu = 0; gpu < 8; ++gpu) {
    GpuStatistics figures = SomeGpu();
    figures.device = "cuda:" + std::to_string(gpu);
    metrics.SetGpu(figures);
    metrics.SetQuarantined(figures.device, false);
  }
  for (int method = 0; method < 36; ++method) {
    for (const char* code : {"OK", "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE", "CANCELLED"}) {
      metrics.Request("grpc", "Method" + std::to_string(method), code);
    }
  }
  for (int job = 0; job < 100; ++job) run_job(job);
  const int with_100_jobs = count();
  EXPECT_LE(with_100_jobs, 1000);
  for (int job = 100; job < 1000; ++job) run_job(job);
  EXPECT_EQ(count(), with_100_jobs);
}

TEST(MetricsPage, AFirstFailureIsAChangeForAlertsWhateverItsKind) {
  MetricsOfJobs metrics("stable", "1.2.3");
  EXPECT_EQ(Value(metrics,
                  "genesis_jobs_finished_total{deployment=\"stable\",cause=\"non_finite\","
                  "state=\"failed\"}"),
            "0");
  EXPECT_EQ(Value(metrics, "genesis_worker_restarts_total{deployment=\"stable\",reason=\"crash\"}"),
            "0");
  EXPECT_EQ(Value(metrics, "genesis_incidents_total{deployment=\"stable\",rule=\"non_finite\"}"),
            "0");
  EXPECT_EQ(Value(metrics, "genesis_jobs{deployment=\"stable\",state=\"running\"}"), "0");
}

TEST(MetricsPage, WhatIsNoLongerMeasuredIsNoLongerShown) {
  MetricsOfJobs metrics("stable", "1.2.3");
  metrics.SetVolume("data", VolumeStatistics{.free = 10, .size = 20});
  metrics.SetUnprotectedSince(2e9);
  metrics.SetGpu(SomeGpu());
  EXPECT_EQ(Value(metrics, "genesis_volume_free_bytes{deployment=\"stable\",volume=\"data\"}"),
            "10");
  EXPECT_EQ(Value(metrics, "genesis_gpu_power_watts{deployment=\"stable\",device=\"cuda:0\"}"),
            "612.5");
  EXPECT_THAT(metrics.RenderText(), HasSubstr("reason=\"sw_power_cap\""));
  GpuStatistics cooler = SomeGpu();
  cooler.throttle_reasons = {"hw_slowdown"};
  metrics.SetGpu(cooler);
  EXPECT_THAT(metrics.RenderText(), Not(HasSubstr("reason=\"sw_power_cap\"")));
  EXPECT_THAT(metrics.RenderText(), HasSubstr("reason=\"hw_slowdown\""));
  metrics.SetVolume("data", std::nullopt);
  metrics.SetUnprotectedSince(std::nullopt);
  metrics.SetGpu({.device = "cuda:0"});
  const std::string text = metrics.RenderText();
  for (const char* name : {"genesis_gpu_", "genesis_volume_", "genesis_unprotected"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

TEST(MetricsPage, AStepIsStampedWithTheTimeOfItsReport) {
  MetricsOfJobs metrics("stable", "1.2.3");
  const double before = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  training::v1::Steps none;
  metrics.Steps("job", none, training::v1::PRECISION_MODE_FP32);
  const std::string series = "genesis_last_step_timestamp_seconds{deployment=\"stable\"}";
  EXPECT_EQ(Value(metrics, series), "");
  metrics.Steps("job", SomeSteps(), training::v1::PRECISION_MODE_FP32);
  EXPECT_GE(std::stod(Value(metrics, series)), before - 1);
  EXPECT_LE(std::stod(Value(metrics, series)), before + 60);
}

TEST(MetricsPage, AppendedTransitionsAddUp) {
  MetricsOfJobs metrics("stable", "1.2.3");
  const std::string series = "genesis_transitions_appended_total{deployment=\"stable\"}";
  EXPECT_EQ(Value(metrics, series), "0");
  metrics.TransitionsAppended(52);
  metrics.TransitionsAppended(3);
  EXPECT_EQ(Value(metrics, series), "55");
}

TEST(MetricsPage, Fp32StepsAreNeitherReducedPrecisionNorDoTheyHaveAScale) {
  MetricsOfJobs metrics("stable", "1.2.3");
  training::v1::Steps steps = SomeSteps();
  steps.set_new_reduced_precision_steps(0);
  steps.set_new_overflow_steps(0);
  steps.mutable_progress()->set_loss_scale(1);
  metrics.Steps("job", steps, training::v1::PRECISION_MODE_FP32);
  EXPECT_EQ(Value(metrics, "genesis_fp16_training_steps_total{deployment=\"stable\"}"), "0");
  EXPECT_EQ(Value(metrics, "genesis_fp16_overflow_steps_total{deployment=\"stable\"}"), "0");
  EXPECT_EQ(
      Value(metrics, "genesis_skipped_steps_total{deployment=\"stable\",reason=\"overflow\"}"),
      "2");
  EXPECT_EQ(Value(metrics, "genesis_loss_scale{deployment=\"stable\"}"), "");
}

TEST(MetricsPage, ALossThatIsNotANumberIsShownAsSuch) {
  MetricsOfJobs metrics("stable", "1.2.3");
  training::v1::Steps steps = SomeSteps();
  metrics.Steps("job", steps, training::v1::PRECISION_MODE_FP32);
  steps.mutable_progress()->set_loss(std::numeric_limits<double>::quiet_NaN());
  metrics.Steps("job", steps, training::v1::PRECISION_MODE_FP32);
  EXPECT_TRUE(
      std::isnan(std::stod(Value(metrics, "genesis_training_loss{deployment=\"stable\"}"))));
}

TEST(MetricsPage, AReportBeforeTheFirstStepShowsNoLoss) {
  MetricsOfJobs metrics("stable", "1.2.3");
  training::v1::Steps steps;
  steps.mutable_progress()->set_total_steps(100);
  metrics.Steps("job", steps, training::v1::PRECISION_MODE_FP32);
  EXPECT_EQ(Value(metrics, "genesis_training_loss{deployment=\"stable\"}"), "");
}

TEST(MetricsPage, ATimeThatIsNoTimeDoesNotSpoilTheSum) {
  MetricsOfJobs metrics("stable", "1.2.3");
  metrics.CheckpointWritten(0.5, 1);
  metrics.CheckpointWritten(std::numeric_limits<double>::quiet_NaN(), 1);
  metrics.CheckpointWritten(-1, 2);
  EXPECT_EQ(Value(metrics, "genesis_checkpoint_duration_seconds_sum{deployment=\"stable\"}"),
            "0.5");
  EXPECT_EQ(Value(metrics, "genesis_checkpoints_total{deployment=\"stable\"}"), "3");
  EXPECT_EQ(Value(metrics, "genesis_checkpoint_bytes{deployment=\"stable\"}"), "2");
}

TEST(MetricsPage, JobsAreCountedInTheStateTheyAreIn) {
  MetricsOfJobs metrics("stable", "1.2.3");
  for (int i = 0; i < 2; ++i) {
    metrics.JobMoved(training::v1::JOB_STATE_UNSPECIFIED, training::v1::JOB_STATE_QUEUED);
  }
  metrics.JobMoved(training::v1::JOB_STATE_QUEUED, training::v1::JOB_STATE_STARTING);
  EXPECT_EQ(Value(metrics, "genesis_jobs{deployment=\"stable\",state=\"queued\"}"), "1");
  EXPECT_EQ(Value(metrics, "genesis_jobs{deployment=\"stable\",state=\"starting\"}"), "1");
}

TEST(MetricsPage, ACancelledJobIsNeitherSuccessNorFailure) {
  MetricsOfJobs metrics("stable", "1.2.3");
  metrics.JobFinished(training::v1::JOB_STATE_SUCCEEDED, training::v1::FAILURE_CAUSE_UNSPECIFIED,
                      20);
  metrics.JobFinished(training::v1::JOB_STATE_FAILED, training::v1::FAILURE_CAUSE_NON_FINITE, 4);
  metrics.JobFinished(training::v1::JOB_STATE_CANCELLED, training::v1::FAILURE_CAUSE_UNSPECIFIED,
                      0);
  const std::string all = "{deployment=\"stable\"}";
  EXPECT_EQ(Value(metrics, "genesis_training_total" + all), "2");
  EXPECT_EQ(Value(metrics, "genesis_training_success_total" + all), "1");
  EXPECT_EQ(Value(metrics, "genesis_training_duration_seconds_count" + all), "2")
      << "a job that no worker began took no time to train";
  const std::string text = metrics.RenderText();
  EXPECT_THAT(text, HasSubstr("cause=\"non_finite\""));
  EXPECT_THAT(text, HasSubstr("state=\"cancelled\""));
}

TEST(MetricsPage, WhatAJobRunsInIsShownWhileItRuns) {
  MetricsOfJobs metrics("stable", "1.2.3");
  training::v1::EffectivePrecision precision;
  precision.set_device("cpu");
  precision.set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
  metrics.SetEffectivePrecision("job", precision);
  metrics.SetEffectivePrecision("job", precision);
  EXPECT_THAT(metrics.RenderText(), HasSubstr("mode=\"bf16\""));
  precision.set_mode(training::v1::PRECISION_MODE_FP32);
  metrics.SetEffectivePrecision("job", precision);
  EXPECT_THAT(metrics.RenderText(), HasSubstr("mode=\"fp32\""));
  EXPECT_THAT(metrics.RenderText(), Not(HasSubstr("mode=\"bf16\"")));
  metrics.JobLeaves("job");
  EXPECT_THAT(metrics.RenderText(), Not(HasSubstr("genesis_effective_precision_info{")));
}

TEST(MetricsPage, IsWholeWhileEventsArrive) {
  MetricsOfJobs metrics("stable", "1.2.3");
  constexpr int kRounds = 300;
  std::vector<std::thread> threads;
  for (const auto mode :
       {training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_MIXED_BF16}) {
    threads.emplace_back([&metrics, mode] {
      training::v1::EffectivePrecision precision;
      precision.set_mode(mode);
      for (int i = 0; i < kRounds; ++i) {
        metrics.Steps("job", SomeSteps(), mode);
        metrics.SetEffectivePrecision("job", precision);
        metrics.Request("grpc", "GetJob", i % 2 == 0 ? "OK" : "NOT_FOUND");
      }
    });
  }
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(metrics.RenderText().ends_with("\n"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Value(metrics, "genesis_training_samples_total{deployment=\"stable\"}"),
            std::to_string(2 * kRounds * 1280));
}

}  // namespace
}  // namespace genesis
