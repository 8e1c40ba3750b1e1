#include "metrics/running_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::Pair;
using training::v1::PRECISION_MODE_FP32;
using training::v1::PRECISION_MODE_MIXED_BF16;
using training::v1::PRECISION_MODE_MIXED_FP16;

training::v1::Steps At(int64_t step, double loss) {
  training::v1::Steps steps;
  steps.mutable_progress()->set_step(step);
  steps.mutable_progress()->set_loss(loss);
  steps.mutable_progress()->set_loss_scale(1);
  return steps;
}

training::v1::Steps Beside(double baseline, double divergence) {
  training::v1::Steps steps = At(100, baseline * 1.7);  // The loss of one step is noisy.
  steps.mutable_progress()->set_baseline_loss(baseline);
  steps.mutable_progress()->set_divergence_ratio(divergence);
  return steps;
}

// Regression: the loss of an FP32 job was shown with the baseline of a BF16 job, a 46th of it.
TEST(RunningJobsTest, LossAndBaselineAreOfOneJob) {
  RunningJobs jobs;
  jobs.NoteSteps("reduced", Beside(0.02, 0.013), PRECISION_MODE_MIXED_BF16);
  jobs.NoteSteps("unlike", At(7, 0.95), PRECISION_MODE_FP32);
  const RunningStatistics figures = jobs.Statistics();
  EXPECT_DOUBLE_EQ(*figures.divergence, 0.013);
  EXPECT_DOUBLE_EQ(*figures.baseline_loss, 0.02);
  EXPECT_NEAR(*figures.loss, 0.02 * 1.013, 1e-12);
  EXPECT_FALSE(figures.loss_scale);
}

TEST(RunningJobsTest, TheJobFurthestFromFp32IsShown) {
  RunningJobs jobs;
  jobs.NoteSteps("below", Beside(3, -0.31), PRECISION_MODE_MIXED_BF16);
  jobs.NoteSteps("near", Beside(5, 0.08), PRECISION_MODE_MIXED_BF16);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().divergence, -0.31);
  jobs.End("below");
  EXPECT_DOUBLE_EQ(*jobs.Statistics().divergence, 0.08);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().baseline_loss, 5);
}

TEST(RunningJobsTest, ALossThatIsNotANumberIsShownBeforeAll) {
  RunningJobs jobs;
  jobs.NoteSteps("nan", At(3, std::numeric_limits<double>::quiet_NaN()), PRECISION_MODE_FP32);
  jobs.NoteSteps("far", Beside(1, 0.9), PRECISION_MODE_MIXED_BF16);
  EXPECT_TRUE(std::isnan(*jobs.Statistics().loss));
  EXPECT_FALSE(jobs.Statistics().divergence);
}

TEST(RunningJobsTest, NothingIsShownWhenNobodyRuns) {
  RunningJobs jobs;
  training::v1::Steps steps = Beside(1, 0.5);
  steps.set_cuda_memory_allocated_bytes(5);
  jobs.NoteSteps("only", steps, PRECISION_MODE_MIXED_FP16);
  jobs.NoteHeldOut("only", 0.25);
  EXPECT_TRUE(jobs.Statistics().held_out_loss);
  EXPECT_TRUE(jobs.Statistics().loss_scale);
  jobs.End("only");
  const RunningStatistics figures = jobs.Statistics();
  EXPECT_FALSE(figures.loss || figures.baseline_loss || figures.divergence || figures.grad_norm ||
               figures.loss_scale || figures.held_out_loss || figures.memory_ratio ||
               figures.speed_ratio);
  EXPECT_TRUE(figures.memory.empty());
  EXPECT_TRUE(figures.precisions.empty());
  EXPECT_TRUE(figures.jobs.empty());
}

TEST(RunningJobsTest, OfManyJobsTheOnesThatNeedAttentionAreShownAlone) {
  RunningJobs jobs;
  for (int i = 0; i < 100; ++i) {
    jobs.NoteSteps(absl::StrCat("calm-", i), Beside(1, 0.01), PRECISION_MODE_MIXED_BF16);
  }
  training::v1::Steps far = Beside(1, -0.5);
  far.set_new_steps(10);
  far.set_new_overflow_steps(3);
  jobs.NoteSteps("far", far, PRECISION_MODE_MIXED_FP16);
  jobs.NoteSteps("far", far, PRECISION_MODE_MIXED_FP16);
  jobs.NoteSteps("nan", At(3, std::numeric_limits<double>::quiet_NaN()), PRECISION_MODE_FP32);
  jobs.Begin("new", {}, 0);
  const std::vector<JobStatistics> shown = jobs.Statistics().jobs;
  ASSERT_EQ(shown.size(), RunningStatistics::kMaxJobs);
  EXPECT_EQ(shown[0].job_id, "nan");
  EXPECT_EQ(shown[1].job_id, "far");
  EXPECT_EQ(shown[1].steps, 20);
  EXPECT_EQ(shown[1].overflow_steps, 6);
  EXPECT_EQ(shown[1].divergence, -0.5);
  EXPECT_FALSE(shown[1].speed_ratio);
}

TEST(RunningJobsTest, AJobBeforeItsFirstStepHasNoLoss) {
  RunningJobs jobs;
  training::v1::EffectivePrecision precision;
  precision.set_mode(PRECISION_MODE_MIXED_BF16);
  precision.set_device("cuda:1");
  jobs.Begin("new", precision, 0);
  EXPECT_FALSE(jobs.Statistics().loss);
  EXPECT_THAT(jobs.Statistics().precisions, ElementsAre(Pair("bf16", "cuda:1")));
  jobs.NoteSteps("old", At(9, 0.5), PRECISION_MODE_FP32);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().loss, 0.5);
}

TEST(RunningJobsTest, SpeedIsOfTheSlowestJobBesideItsOwnFp32) {
  RunningJobs jobs;
  const auto running = [](double speed) {
    training::v1::Steps steps = At(100, 1);
    steps.mutable_progress()->set_speed_ratio(speed);
    return steps;
  };
  jobs.NoteSteps("unlike", At(100, 1), PRECISION_MODE_FP32);
  EXPECT_FALSE(jobs.Statistics().speed_ratio);
  jobs.NoteSteps("fast", running(2.4), PRECISION_MODE_MIXED_BF16);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().speed_ratio, 2.4);
  jobs.NoteSteps("slow", running(0.7), PRECISION_MODE_MIXED_BF16);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().speed_ratio, 0.7);
  jobs.End("slow");
  EXPECT_DOUBLE_EQ(*jobs.Statistics().speed_ratio, 2.4);
}

TEST(RunningJobsTest, RanksWaitAsLongAsInTheJobWhereTheyWaitLongest) {
  RunningJobs jobs;
  jobs.NoteSteps("alone", At(100, 1), PRECISION_MODE_FP32);
  EXPECT_FALSE(jobs.Statistics().wait_ratio);
  jobs.NoteWait("even", 0.06);
  jobs.NoteWait("uneven", 0.61);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().wait_ratio, 0.61);
  jobs.NoteWait("uneven", 0);
  EXPECT_DOUBLE_EQ(*jobs.Statistics().wait_ratio, 0.06);
  jobs.End("even");
  EXPECT_DOUBLE_EQ(*jobs.Statistics().wait_ratio, 0);
  jobs.Begin("uneven", {}, 0);
  EXPECT_FALSE(jobs.Statistics().wait_ratio);
}

TEST(RunningJobsTest, MemoryIsComparedWithFp32OfTheSameWorkload) {
  RunningJobs jobs;
  const auto holding = [](int64_t bytes) {
    training::v1::Steps steps = At(1, 1);
    steps.set_cuda_memory_allocated_bytes(bytes);
    steps.set_cuda_memory_peak_bytes(2 * bytes);
    return steps;
  };
  training::v1::EffectivePrecision precision;
  precision.set_mode(PRECISION_MODE_MIXED_FP16);
  jobs.Begin("a", precision, /*fp32_peak_bytes=*/1000);
  jobs.Begin("b", precision, /*fp32_peak_bytes=*/0);
  jobs.NoteSteps("a", holding(300), PRECISION_MODE_MIXED_FP16);
  jobs.NoteSteps("b", holding(7000), PRECISION_MODE_MIXED_FP16);
  jobs.NoteSteps("c", holding(50), PRECISION_MODE_FP32);
  const RunningStatistics figures = jobs.Statistics();
  EXPECT_DOUBLE_EQ(*figures.memory_ratio, 0.6);
  EXPECT_EQ(figures.memory.at("fp16").allocated, 7300);
  EXPECT_EQ(figures.memory.at("fp32").peak, 100);
}

}  // namespace
}  // namespace genesis
