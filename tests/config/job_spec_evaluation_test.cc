// Tests of the section evaluation, and of schedules that depend on it.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "config/job/job_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using training::v1::JobSpec;

JobSpec SmallestJob() {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_trajectories()->set_path("walks.npz");
  spec.mutable_training()->set_max_steps(100);
  return spec;
}

std::vector<std::string> EvaluationFaults(const std::function<void(JobSpec&)>& change) {
  JobSpec spec = SmallestJob();
  change(spec);
  std::vector<std::string> texts;
  for (const FieldError& error : ValidateJobSpec(spec)) texts.push_back(error.ToString());
  return texts;
}

TEST(EvaluationSpecTest, AMetricFromOutsideTakesThePlaceOfEvaluations) {
  const auto follow = [](JobSpec& spec) {
    training::v1::EvaluationSpec& evaluation = *spec.mutable_evaluation();
    evaluation.set_metric("return");
    evaluation.set_mode(training::v1::METRIC_MODE_MAX);
    evaluation.set_target(-200);
    evaluation.set_patience(3);
  };
  JobSpec follower = SmallestJob();
  follow(follower);
  EXPECT_EQ(WithDefaults(follower, LossScaleSettings()).checkpoint().keep_best(), 1);
  EXPECT_THAT(EvaluationFaults([&](JobSpec& spec) {
                follow(spec);
                spec.mutable_checkpoint()->set_keep_best(2);
              }),
              IsEmpty());
  EXPECT_THAT(
      EvaluationFaults([](JobSpec& spec) {
        spec.mutable_evaluation()->set_metric("a return");
        spec.mutable_evaluation()->set_target(HUGE_VAL);
      }),
      ElementsAre("evaluation.metric is \"a return\"; accepted: 1 to 63 letters, digits, '.', "
                  "'_', '/' and '-'",
                  "evaluation.mode: required with evaluation.metric; give MAX if larger "
                  "values are better, or MIN",
                  "evaluation.target is inf; accepted: a finite number"));
  EXPECT_THAT(
      EvaluationFaults([](JobSpec& spec) {
        spec.mutable_evaluation()->set_mode(training::v1::METRIC_MODE_MIN);
        spec.mutable_evaluation()->set_target(0);
      }),
      ElementsAre("evaluation.mode: MIN needs evaluation.metric; name the metric that callers "
                  "report, or remove evaluation.mode",
                  "evaluation.target: 0 needs evaluation.metric; name the metric that callers "
                  "report, or remove evaluation.target"));
}

TEST(EvaluationSpecTest, APlateauNeedsEvaluationsOrReports) {
  const auto plateau = [](JobSpec& spec) -> training::v1::ScheduleSpec& {
    auto& schedule = *spec.mutable_optimizer()->mutable_schedule();
    schedule.set_kind(training::v1::SCHEDULE_KIND_PLATEAU);
    return schedule;
  };
  EXPECT_THAT(EvaluationFaults([&](JobSpec& spec) {
                plateau(spec);
                spec.mutable_evaluation()->set_every_steps(10);
              }),
              IsEmpty());
  EXPECT_THAT(EvaluationFaults([&](JobSpec& spec) { plateau(spec).set_plateau_factor(1); }),
              ElementsAre("optimizer.schedule.plateau_factor is 1; accepted: above 0 and below 1",
                          "optimizer.schedule.kind is PLATEAU; accepted: PLATEAU with "
                          "evaluation.every_steps, or with an evaluation.metric that callers "
                          "report; give one, or another kind"));
  EXPECT_THAT(EvaluationFaults([](JobSpec& spec) {
                spec.mutable_optimizer()->mutable_schedule()->set_plateau_patience(3);
              }),
              ElementsAre("optimizer.schedule.plateau_patience: 3 conflicts with an "
                          "optimizer.schedule.kind other than PLATEAU; remove it, or give "
                          "PLATEAU"));
}

}  // namespace
}  // namespace genesis
