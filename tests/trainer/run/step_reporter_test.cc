#include "trainer/run/step_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace genesis {
namespace {

using std::chrono::milliseconds;

class Recorder : public RunObserver {
 public:
  void OnStarted(const training::v1::Started&) override {}
  void OnSteps(const training::v1::Steps& steps) override { reports.push_back(steps); }
  void OnCheckpoint(const training::v1::CheckpointWritten&) override {}
  void OnLog(const std::string&) override {}

  std::vector<training::v1::Steps> reports;
};

class StepReporterTest : public testing::Test {
 protected:
  StepReporter Make() {
    training::v1::Progress progress;
    progress.set_samples(1000);
    StepReporter::Options options;
    options.samples_per_step = 10;
    options.clock = [this] { return now_; };
    return StepReporter(recorder_, progress, options);
  }

  std::chrono::steady_clock::time_point now_;
  Recorder recorder_;
};

TEST_F(StepReporterTest, ReportsTheFirstStepAtOnceAndThenEveryTenthOfASecond) {
  StepReporter reporter = Make();
  for (int64_t step = 1; step <= 50; ++step) {
    reporter.Add({.step = step}, 1, 0, 0.004);
    now_ += milliseconds(4);
  }
  ASSERT_EQ(recorder_.reports.size(), 2u);
  EXPECT_EQ(recorder_.reports[0].new_steps(), 1);
  EXPECT_EQ(recorder_.reports[1].new_steps(), 25);
  reporter.Flush();
  ASSERT_EQ(recorder_.reports.size(), 3u);
  EXPECT_EQ(recorder_.reports[2].new_steps(), 24);
  EXPECT_EQ(recorder_.reports[2].step_seconds_size(), 24);
  EXPECT_EQ(recorder_.reports[2].progress().samples(), 1500);
  reporter.Flush();
  EXPECT_EQ(recorder_.reports.size(), 3u);
}

TEST_F(StepReporterTest, CountsSkippedStepsAndGrowthsOfTheScale) {
  StepReporter reporter = Make();
  const auto mode = training::v1::PRECISION_MODE_MIXED_FP16;
  reporter.Add({.step = 1, .loss_scale = 4, .skipped = true, .mode = mode}, 2, 0, 0.1);
  reporter.Add({.step = 2, .loss_scale = 2, .mode = mode}, 4, 0.5, 0.1);
  reporter.Flush();
  ASSERT_EQ(recorder_.reports.size(), 2u);
  EXPECT_EQ(recorder_.reports[0].new_skipped_steps(), 1);
  EXPECT_EQ(recorder_.reports[0].new_scale_growths(), 0);
  EXPECT_EQ(recorder_.reports[0].new_scale_backoffs(), 1);
  EXPECT_EQ(recorder_.reports[1].new_scale_backoffs(), 0);
  EXPECT_EQ(recorder_.reports[1].progress().baseline_loss(), 0.5);
  EXPECT_EQ(recorder_.reports[1].progress().mode(), mode);
  EXPECT_EQ(recorder_.reports[1].new_scale_growths(), 1);
  EXPECT_EQ(reporter.progress().skipped_steps(), 1);
  EXPECT_EQ(reporter.progress().reduced_precision_steps(), 2);
  EXPECT_EQ(reporter.progress().loss_scale(), 4);
}

TEST_F(StepReporterTest, OnlyAStepInReducedPrecisionOverflows) {
  StepReporter reporter = Make();
  reporter.Add({.step = 1, .skipped = true, .mode = training::v1::PRECISION_MODE_BF16}, 1, 0, 0.1);
  for (int64_t step = 2; step <= 6; ++step) {
    reporter.Add({.step = step, .skipped = true, .mode = training::v1::PRECISION_MODE_FP32}, 1, 0,
                 0.1);
  }
  reporter.Flush();
  ASSERT_EQ(recorder_.reports.size(), 2u);
  EXPECT_EQ(recorder_.reports[0].new_overflow_steps(), 1);
  EXPECT_EQ(recorder_.reports[1].new_overflow_steps(), 0);
  EXPECT_EQ(recorder_.reports[1].new_skipped_steps(), 5);
  EXPECT_EQ(reporter.progress().overflow_steps(), 1);
  EXPECT_EQ(reporter.progress().skipped_steps(), 6);
}

TEST_F(StepReporterTest, AJobThatNeverOverflowedReportsZero) {
  StepReporter reporter = Make();
  reporter.Add({.step = 1, .skipped = true, .mode = training::v1::PRECISION_MODE_FP32}, 1, 0, 0.1);
  ASSERT_EQ(recorder_.reports.size(), 1u);
  EXPECT_TRUE(recorder_.reports[0].progress().has_overflow_steps());
  EXPECT_EQ(recorder_.reports[0].progress().overflow_steps(), 0);
}

TEST_F(StepReporterTest, ReportsWhatTheAllocatorHoldsAndNothingWithoutOne) {
  StepReporter on_cpu = Make();
  on_cpu.Add({.step = 1}, 1, 0, 0.1);
  ASSERT_EQ(recorder_.reports.size(), 1u);
  EXPECT_FALSE(recorder_.reports[0].has_cuda_memory_allocated_bytes());
  EXPECT_FALSE(recorder_.reports[0].has_cuda_memory_reserved_bytes());
  EXPECT_FALSE(recorder_.reports[0].has_cuda_memory_peak_bytes());

  StepReporter::Options options;
  options.device_memory = [] {
    return DeviceMemory{.allocated = 100, .reserved = 300, .peak = 200};
  };
  StepReporter on_cuda(recorder_, training::v1::Progress(), options);
  on_cuda.Add({.step = 1}, 1, 0, 0.1);
  ASSERT_EQ(recorder_.reports.size(), 2u);
  EXPECT_EQ(recorder_.reports[1].cuda_memory_allocated_bytes(), 100);
  EXPECT_EQ(recorder_.reports[1].cuda_memory_reserved_bytes(), 300);
  EXPECT_EQ(recorder_.reports[1].cuda_memory_peak_bytes(), 200);
}

TEST_F(StepReporterTest, GoesBackToAnEarlierStepAndCountsEveryStepMade) {
  StepReporter reporter = Make();
  for (int64_t step = 1; step <= 5; ++step) reporter.Add({.step = step}, 1, 0, 0.1);
  training::v1::Progress before;
  before.set_step(2);
  before.set_samples(1020);
  before.set_loss(0.25);
  before.set_overflow_steps(7);
  reporter.Rewind(before);
  EXPECT_EQ(reporter.progress().overflow_steps(), 7);
  EXPECT_EQ(reporter.progress().step(), 2);
  EXPECT_EQ(reporter.progress().samples(), 1020);
  EXPECT_EQ(reporter.progress().loss(), 0.25);
  reporter.Add({.step = 3}, 1, 0, 0.1);
  reporter.Flush();
  int64_t steps = 0;
  for (const training::v1::Steps& report : recorder_.reports) steps += report.new_steps();
  EXPECT_EQ(steps, 6);
}

}  // namespace
}  // namespace genesis
