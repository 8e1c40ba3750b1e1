#include "server/ledger/training_stats.h"

#include <gmock/gmock.h>

namespace genesis {
namespace {

using training::v1::Steps;

constexpr auto kMode = training::v1::PRECISION_MODE_MIXED_FP16;
const absl::Time kStatsNow = absl::FromUnixSeconds(1'000'000);

Steps Report(int64_t step, int64_t skipped = 0) {
  Steps steps;
  steps.set_new_steps(10);
  steps.set_new_samples(100);
  steps.set_new_reduced_precision_steps(10);
  steps.set_new_skipped_steps(skipped);
  steps.set_new_overflow_steps(skipped);
  steps.mutable_progress()->set_step(step);
  return steps;
}

TEST(TrainingStatsTest, AWindowHoldsWhatHappenedInIt) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  stats.Sample(kStatsNow);
  stats.NoteSteps("a", Report(10, 5), kMode, kStatsNow + absl::Seconds(1));
  stats.Sample(kStatsNow + absl::Seconds(60));
  stats.NoteSteps("a", Report(20, 1), kMode, kStatsNow + absl::Seconds(61));
  const auto last = stats.Window(absl::Seconds(10), kStatsNow + absl::Seconds(70));
  EXPECT_EQ(last.seconds(), 10);
  EXPECT_EQ(last.steps(), 10);
  EXPECT_EQ(last.samples_per_second(), 10);
  EXPECT_DOUBLE_EQ(last.overflow_rate(), 0.1);
  const auto all = stats.Window(absl::Hours(1), kStatsNow + absl::Seconds(70));
  EXPECT_EQ(all.seconds(), 70) << "a young daemon knows no more";
  EXPECT_EQ(all.steps(), 20);
  EXPECT_DOUBLE_EQ(all.overflow_rate(), 0.3);
}

TEST(TrainingStatsTest, AStepThatFp32SkipsIsNotAnOverflow) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  stats.Sample(kStatsNow);
  Steps fp32;
  fp32.set_new_steps(50);
  fp32.set_new_skipped_steps(40);
  stats.NoteSteps("a", Report(10, 3), kMode, kStatsNow);
  stats.NoteSteps("a", fp32, training::v1::PRECISION_MODE_FP32, kStatsNow);
  stats.NoteSteps("b", fp32, training::v1::PRECISION_MODE_FP32, kStatsNow);
  stats.NoteSteps("b", Report(10), kMode, kStatsNow);
  EXPECT_DOUBLE_EQ(stats.Totals().OverflowRate(), 0.15);
  EXPECT_EQ(stats.Totals().steps, 120);
  const absl::Time later = kStatsNow + absl::Seconds(9);
  EXPECT_DOUBLE_EQ(stats.Window(absl::Hours(1), later).overflow_rate(), 0.15);
  EXPECT_EQ(stats.Window(absl::Hours(1), later).skipped_steps(), 3);
  EXPECT_DOUBLE_EQ(stats.WindowOf("a", absl::Hours(1), later).overflow_rate(), 0.3);
  EXPECT_EQ(stats.WindowOf("b", absl::Hours(1), later).overflow_rate(), 0);
}

TEST(TrainingStatsTest, WithoutAStepTheRateIsZero) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  EXPECT_EQ(stats.Totals().OverflowRate(), 0);
  Steps fp32;
  fp32.set_new_steps(5);
  fp32.set_new_skipped_steps(5);
  stats.NoteSteps("a", fp32, training::v1::PRECISION_MODE_FP32, kStatsNow);
  EXPECT_EQ(stats.Totals().OverflowRate(), 0);
}

TEST(TrainingStatsTest, KeepsJobsApart) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  stats.NoteSteps("a", Report(10), kMode, kStatsNow);
  stats.NoteSteps("b", Report(10), kMode, kStatsNow);
  stats.NoteSteps("b", Report(20), kMode, kStatsNow + absl::Seconds(20));
  EXPECT_EQ(stats.WindowOf("b", absl::Hours(1), kStatsNow + absl::Seconds(20)).steps(), 20);
  EXPECT_EQ(stats.HistoryOf("a").size(), 1U);
  EXPECT_EQ(stats.HistoryOf("nobody").size(), 0U);
}

TEST(TrainingStatsTest, AHistoryStaysBoundedAndEven) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  for (int64_t i = 1; i <= 10000; ++i) stats.NoteSteps("a", Report(i), kMode, kStatsNow);
  const auto points = stats.HistoryOf("a");
  ASSERT_GT(points.size(), 100U);
  ASSERT_LE(points.size(), 256U);
  const int64_t stride = points[1].step() - points[0].step();
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_EQ(points[i].step() - points[i - 1].step(), stride);
  }
  EXPECT_EQ(points.front().step(), 1);
}

TEST(TrainingStatsTest, ForgetsTheJobUsedLongestAgo) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  for (int i = 0; i < 64; ++i) stats.NoteSteps(std::to_string(i), Report(1), kMode, kStatsNow);
  stats.NoteSteps("0", Report(2), kMode, kStatsNow);
  stats.NoteSteps("new", Report(1), kMode, kStatsNow);
  EXPECT_EQ(stats.HistoryOf("1").size(), 0U);
  EXPECT_EQ(stats.HistoryOf("0").size(), 2U);
}

TEST(TrainingStatsTest, DeviceMemoryIsWhatTheWorkersOfRunningJobsHold) {
  Metrics metrics("stable", "1.2.3");
  TrainingStats stats(&metrics);
  const auto holding = [](int64_t bytes) {
    Steps steps = Report(2);
    steps.set_cuda_memory_allocated_bytes(bytes);
    return steps;
  };
  stats.NoteSteps("a", Report(1), kMode, kStatsNow);
  EXPECT_TRUE(stats.DeviceMemory().empty());
  EXPECT_EQ(stats.DeviceMemoryOf("a"), std::nullopt);
  stats.NoteSteps("a", holding(1 << 20), kMode, kStatsNow);
  stats.NoteSteps("b", holding(3 << 20), kMode, kStatsNow);
  EXPECT_EQ(stats.DeviceMemory().at("fp16"), 4 << 20);
  EXPECT_EQ(stats.DeviceMemoryOf("b"), 3 << 20);
  const std::string shown =
      "genesis_cuda_memory_allocated_bytes{deployment=\"stable\",mode=\"fp16\"} 4194304";
  EXPECT_THAT(metrics.RenderText(), testing::HasSubstr(shown));
  stats.NoteLeave("a");
  EXPECT_EQ(stats.DeviceMemory().at("fp16"), 3 << 20);
  EXPECT_EQ(stats.DeviceMemoryOf("a"), std::nullopt);
  EXPECT_THAT(metrics.RenderText(), testing::Not(testing::HasSubstr(shown)));
}

}  // namespace
}  // namespace genesis
