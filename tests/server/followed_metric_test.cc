#include "server/jobs/followed_metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace genesis {
namespace {

using testing::HasSubstr;
using training::v1::EvaluationSpec;
using training::v1::FollowedMetric;

using Values = std::map<int64_t, double>;

EvaluationSpec Returns(training::v1::MetricMode mode = training::v1::METRIC_MODE_MAX) {
  EvaluationSpec spec;
  spec.set_metric("return");
  spec.set_mode(mode);
  return spec;
}

FollowedMetric Follow(const EvaluationSpec& spec, const Values& values,
                      const FollowedMetric* before = nullptr, bool ended = false) {
  training::v1::JobSpec job;
  *job.mutable_evaluation() = spec;
  job.mutable_optimizer()->mutable_schedule()->set_plateau_patience(2);
  return FollowMetric(job, values, before, ended);
}

TEST(FollowedMetricTest, TheBestIsTheLargestOrTheSmallest) {
  const Values values = {{10, -5}, {20, 3}, {30, 1}, {40, 3}};
  const FollowedMetric largest = Follow(Returns(), values);
  EXPECT_EQ(largest.best_value(), 3);
  EXPECT_EQ(largest.best_step(), 20) << "an equal value is no improvement";
  EXPECT_EQ(largest.without_improvement(), 2);
  EXPECT_EQ(largest.early_end(), "");
  const FollowedMetric smallest = Follow(Returns(training::v1::METRIC_MODE_MIN), values);
  EXPECT_EQ(smallest.best_value(), -5);
  EXPECT_EQ(smallest.without_improvement(), 3);
}

TEST(FollowedMetricTest, AnImprovementExceedsTheMargin) {
  EvaluationSpec spec = Returns();
  spec.set_min_improvement(0.5);
  const FollowedMetric state = Follow(spec, {{1, 1.0}, {2, 1.5}, {3, 1.25}});
  EXPECT_EQ(state.best_step(), 1);
  EXPECT_EQ(state.without_improvement(), 2);
}

TEST(FollowedMetricTest, PatienceCountsStepsWhateverTheOrderOfTheReports) {
  EvaluationSpec spec = Returns();
  spec.set_patience(2);
  EXPECT_EQ(Follow(spec, {{10, 5}, {30, 4}}).early_end(), "");
  const FollowedMetric state = Follow(spec, {{10, 5}, {20, 3}, {30, 4}});
  EXPECT_EQ(state.early_end(),
            "2 reports in a row did not improve on the return 5 of step 10; evaluation.patience is "
            "2");
  EXPECT_EQ(Follow(spec, {{10, 5}, {20, 6}, {30, 4}}).early_end(), "");
}

TEST(FollowedMetricTest, ATargetIsReachedInTheDirectionOfTheMode) {
  EvaluationSpec spec = Returns();
  spec.set_target(-2);
  spec.set_min_improvement(100);
  EXPECT_EQ(Follow(spec, {{1, -3}}).early_end(), "");
  EXPECT_EQ(Follow(spec, {{1, -3}, {2, -2}}).early_end(),
            "the reported return reached -2; evaluation.target is -2");
  spec.set_mode(training::v1::METRIC_MODE_MIN);
  EXPECT_THAT(Follow(spec, {{1, -3}}).early_end(), HasSubstr("reached -3"));
  EXPECT_EQ(Follow(spec, {{1, -1}}).early_end(), "");
}

TEST(FollowedMetricTest, AJobThatHasEndedDoesNotEndEarly) {
  EvaluationSpec spec = Returns();
  spec.set_target(1);
  const FollowedMetric state = Follow(spec, {{5, 2}}, nullptr, /*ended=*/true);
  EXPECT_EQ(state.best_step(), 5);
  EXPECT_EQ(state.early_end(), "");
}

TEST(FollowedMetricTest, ABestValueWhoseReportIsNoLongerKeptCounts) {
  EvaluationSpec spec = Returns();
  spec.set_patience(3);
  FollowedMetric before;
  before.set_best_value(9);
  before.set_best_step(10);
  const FollowedMetric state = Follow(spec, {{5, 50}, {20, 8}, {30, 7}}, &before);
  EXPECT_EQ(state.best_step(), 10);
  EXPECT_EQ(state.without_improvement(), 2);
  EXPECT_EQ(state.early_end(), "");
}

TEST(FollowedMetricTest, AReplacedBestValueIsForgottenButNotADecision) {
  EvaluationSpec spec = Returns();
  spec.set_target(9);
  const FollowedMetric before = Follow(spec, {{10, 9}, {20, 8}});
  ASSERT_NE(before.early_end(), "");
  const FollowedMetric state = Follow(spec, {{10, 7}, {20, 8}}, &before);
  EXPECT_EQ(state.best_step(), 20);
  EXPECT_EQ(state.early_end(), before.early_end());
}

TEST(FollowedMetricTest, EachPlateauLowersTheRateOnce) {
  Values values;
  FollowedMetric state;
  const std::map<int64_t, int64_t> reductions = {{10, 0}, {20, 0}, {30, 1}, {40, 1}, {50, 2},
                                                 {60, 2}, {70, 2}, {80, 3}, {90, 3}};
  const Values reported = {{10, 5}, {20, 4}, {30, 4}, {40, 4}, {50, 5},
                           {60, 9}, {70, 8}, {80, 8}, {90, 8}};
  for (const auto& [step, value] : reported) {
    values[step] = value;
    const FollowedMetric before = state;
    state = Follow(Returns(), values, step == 10 ? nullptr : &before);
    EXPECT_EQ(state.rate_reductions(), reductions.at(step)) << step;
  }
  const FollowedMetric kept = Follow(Returns(), {{70, 8}, {80, 8}, {90, 8}, {100, 8}}, &state);
  EXPECT_EQ(kept.rate_reductions(), 4) << "earlier values are no longer kept";
  EXPECT_EQ(Follow(Returns(), reported).rate_reductions(), 3);
}

}  // namespace
}  // namespace genesis
