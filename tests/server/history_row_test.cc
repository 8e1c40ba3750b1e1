#include "server/ledger/history_row.h"

#include <gtest/gtest.h>

#include "base/timestamp.h"

namespace genesis {
namespace {

using training::v1::HistoryRow;
using training::v1::Job;

const absl::Time kHistoryNow = absl::FromUnixSeconds(1'767'323'045);

Job JobIn(training::v1::PrecisionMode mode) {
  Job job;
  job.set_id("a");
  job.set_state(training::v1::JOB_STATE_RUNNING);
  job.mutable_precision()->set_mode(mode);
  training::v1::Progress& progress = *job.mutable_progress();
  progress.set_step(200);
  progress.set_mode(mode);
  progress.set_loss(0.5);
  progress.set_loss_scale(1024);
  progress.set_samples_per_second(99);
  return job;
}

TEST(HistoryRowTest, OverflowsAreThoseOfReducedPrecision) {
  Job job = JobIn(training::v1::PRECISION_MODE_MIXED_FP16);
  job.mutable_progress()->set_reduced_precision_steps(100);
  job.mutable_progress()->set_skipped_steps(65);
  job.mutable_progress()->set_overflow_steps(25);
  job.mutable_progress()->set_baseline_loss(0.4);
  const HistoryRow row = MakeHistoryRow(job, true, 4096, kHistoryNow);
  EXPECT_EQ(FromTimestamp(row.time()), kHistoryNow);
  EXPECT_EQ(row.training_steps(), 200);
  EXPECT_EQ(row.fp16_steps(), 100);
  EXPECT_EQ(row.overflow_steps(), 25);
  EXPECT_EQ(row.overflow_rate(), 0.25);
  EXPECT_EQ(row.loss_scale(), 1024);
  EXPECT_EQ(row.baseline_loss(), 0.4);
  EXPECT_EQ(row.memory_allocated_bytes(), 4096);
  EXPECT_EQ(row.samples_per_second(), 99);
  EXPECT_TRUE(row.fp16_enabled());
}

TEST(HistoryRowTest, CountsWhatTheWatchdogFoundWhereItCompares) {
  Job job = JobIn(training::v1::PRECISION_MODE_MIXED_BF16);
  EXPECT_FALSE(MakeHistoryRow(job, true, std::nullopt, kHistoryNow).has_divergences())
      << "no step was in reduced precision";
  job.mutable_progress()->set_reduced_precision_steps(100);
  EXPECT_EQ(MakeHistoryRow(job, true, std::nullopt, kHistoryNow).divergences(), 0);
  EXPECT_TRUE(MakeHistoryRow(job, true, std::nullopt, kHistoryNow).has_divergences());
  for (const char* rule : {"divergence", "overflow", "divergence"}) {
    job.add_incidents()->set_rule(rule);
  }
  EXPECT_EQ(MakeHistoryRow(job, true, std::nullopt, kHistoryNow).divergences(), 2);
  auto& rule = *job.mutable_spec()->mutable_precision()->mutable_watchdog()->mutable_divergence();
  rule.set_action(training::v1::WATCHDOG_ACTION_OFF);
  EXPECT_FALSE(MakeHistoryRow(job, true, std::nullopt, kHistoryNow).has_divergences());
}

TEST(HistoryRowTest, AStepThatFp32SkipsIsNoOverflow) {
  Job job = JobIn(training::v1::PRECISION_MODE_FP32);
  job.mutable_progress()->set_skipped_steps(3);
  job.mutable_progress()->set_overflow_steps(0);
  const HistoryRow row = MakeHistoryRow(job, false, std::nullopt, kHistoryNow);
  EXPECT_EQ(row.overflow_steps(), 0);
  EXPECT_FALSE(row.has_overflow_rate());
  EXPECT_FALSE(row.has_loss_scale()) << "FP32 has none";
  EXPECT_FALSE(row.has_memory_allocated_bytes());
}

TEST(HistoryRowTest, AJobThatFellBackDoesNotCountWhatFp32SkippedAsOverflows) {
  Job job = JobIn(training::v1::PRECISION_MODE_FP32);
  job.mutable_progress()->set_reduced_precision_steps(80);
  job.mutable_progress()->set_skipped_steps(120);
  job.mutable_progress()->set_overflow_steps(0);
  const HistoryRow row = MakeHistoryRow(job, true, std::nullopt, kHistoryNow);
  EXPECT_EQ(row.overflow_steps(), 0);
  EXPECT_EQ(row.overflow_rate(), 0);
  EXPECT_EQ(OverflowRate(job.progress()), 0);
}

TEST(HistoryRowTest, AJobOfAnEarlierVersionIsAtMostOneHundredPercent) {
  Job job = JobIn(training::v1::PRECISION_MODE_MIXED_FP16);
  job.mutable_progress()->set_reduced_precision_steps(80);
  job.mutable_progress()->set_skipped_steps(120);
  EXPECT_EQ(OverflowRate(job.progress()), 1);
  job.mutable_progress()->set_skipped_steps(4);
  EXPECT_EQ(OverflowRate(job.progress()), 0.05);
}

TEST(HistoryRowTest, AnAttemptThatBeginsAfreshHasNoFigures) {
  Job job = JobIn(training::v1::PRECISION_MODE_FP32);
  job.mutable_progress()->set_step(0);
  const HistoryRow row = MakeHistoryRow(job, false, std::nullopt, kHistoryNow);
  EXPECT_FALSE(row.has_loss());
  EXPECT_FALSE(row.has_samples_per_second());
}

TEST(HistoryRowTest, BeforeTheFirstStepNothingIsMeasured) {
  Job job;
  job.set_id("a");
  job.set_state(training::v1::JOB_STATE_STARTING);
  job.mutable_precision()->set_mode(training::v1::PRECISION_MODE_BF16);
  const HistoryRow row = MakeHistoryRow(job, true, std::nullopt, kHistoryNow);
  EXPECT_EQ(row.mode(), training::v1::PRECISION_MODE_BF16) << "what the attempt was given";
  EXPECT_FALSE(row.has_loss());
  EXPECT_FALSE(row.has_baseline_loss());
  EXPECT_FALSE(row.has_samples_per_second());
}

}  // namespace
}  // namespace genesis
