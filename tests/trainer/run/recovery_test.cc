// Tests of injected faults, and of the state that the precision policy guarantees afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tests/trainer/job_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/run/training_run.h"

namespace genesis {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using training::v1::Finished;
using training::v1::PrecisionMode;

constexpr auto kFp32 = training::v1::PRECISION_MODE_FP32;
constexpr auto kFp16 = training::v1::PRECISION_MODE_FP16;
constexpr auto kMixedBf16 = training::v1::PRECISION_MODE_MIXED_BF16;
constexpr auto kMixedFp16 = training::v1::PRECISION_MODE_MIXED_FP16;

class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest() {
    job_.mutable_spec()->mutable_training()->set_max_steps(120);
    job_.add_allowed_modes(kFp16);
    // Emulated formats are slow on any CPU. One test covers that.
    precision().mutable_watchdog()->mutable_slowdown()->set_action(
        training::v1::WATCHDOG_ACTION_OFF);
  }
  training::v1::PrecisionSpec& precision() { return *job_.mutable_spec()->mutable_precision(); }
  void RunIn(PrecisionMode mode) { job_.mutable_precision()->set_mode(mode); }
  void Rehearse(training::v1::RehearsalKind kind, int64_t at_step, int32_t steps, double amount) {
    training::v1::RehearsalSpec& rehearsal = *job_.mutable_spec()->add_rehearsals();
    rehearsal.set_kind(kind);
    rehearsal.set_at_step(at_step);
    rehearsal.set_steps(steps);
    rehearsal.set_amount(amount);
  }
  void OverflowStorm(int64_t at_step, int32_t steps) {
    Rehearse(training::v1::REHEARSAL_KIND_INF, at_step, steps, 1);
  }
  Finished Run() { return RunTraining(job_, TestCpu(), control_, observer_, alone_); }
  std::vector<double> Losses() const {
    std::vector<double> losses;
    for (const StepRecord& step : observer_.steps) losses.push_back(step.loss);
    return losses;
  }
  std::vector<std::string> Rules() const {
    std::vector<std::string> rules;
    for (const training::v1::Incident& incident : observer_.incidents) {
      rules.push_back(incident.rule());
    }
    return rules;
  }
  // Returns the number of updates that the optimizer has counted in the newest checkpoint.
  double OptimizerSteps() const {
    const auto state = ReadCheckpoint(observer_.checkpoints.back().checkpoint().path());
    EXPECT_TRUE(state.ok()) << state.status();
    return state->optimizer.parameters[0][0].second.item<float>();
  }

  TempDir folder_;
  training::v1::StartJob job_ = TinyJob(folder_);
  RunControl control_;
  RankGroup alone_;
  RecordingObserver observer_;
};

TEST_F(RecoveryTest, AnOverflowStormFallsBackWithoutLosingAStep) {
  RunIn(kMixedFp16);
  precision().set_min_loss_scale(1e-30);
  OverflowStorm(40, 60);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  ASSERT_EQ(observer_.changes.size(), 1u) << observer_.log;
  const training::v1::PrecisionChange& change = observer_.changes[0];
  EXPECT_EQ(change.trigger(), "overflow");
  EXPECT_EQ(change.from(), kMixedFp16);
  EXPECT_EQ(change.to(), kMixedBf16);
  EXPECT_EQ(change.resumed_step(), change.step());
  EXPECT_THAT(change.reason(), HasSubstr("of the last 100 steps overflowed"));
  EXPECT_THAT(Rules(), Contains("overflow_warning"));
  EXPECT_THAT(Rules(), Contains("overflow"));
  EXPECT_EQ(observer_.steps.size(), 120u);
  EXPECT_EQ(OptimizerSteps(), static_cast<double>(120 - finished.progress().skipped_steps()));
}

TEST_F(RecoveryTest, AScaleAtItsFloorFallsBackAndNamesTheParameter) {
  RunIn(kMixedFp16);
  precision().set_loss_scale(16);
  precision().add_fallbacks(kFp32);
  OverflowStorm(20, 60);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1u) << observer_.log;
  EXPECT_EQ(observer_.changes[0].trigger(), "scale_floor");
  EXPECT_EQ(observer_.changes[0].to(), kFp32);
  const training::v1::Incident& incident = observer_.incidents.back();
  EXPECT_THAT(incident.parameters(), ElementsAre("encoder.0.weight"));
  EXPECT_THAT(incident.message(), HasSubstr("although the loss scale is at its lowest, 1"));
}

TEST_F(RecoveryTest, Fp16FallsBackToFp32AndIsPromotedAgainWithItsOptimizerState) {
  RunIn(kMixedFp16);
  precision().set_loss_scale(16);
  precision().add_fallbacks(kFp32);
  precision().set_promote_after_steps(30);
  OverflowStorm(20, 8);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  ASSERT_EQ(observer_.changes.size(), 2u) << observer_.log;
  EXPECT_EQ(observer_.changes[0].to(), kFp32);
  EXPECT_EQ(observer_.changes[1].trigger(), "promotion");
  EXPECT_EQ(observer_.changes[1].to(), kMixedFp16);
  EXPECT_GE(observer_.changes[1].step(), observer_.changes[0].step() + 30);
  EXPECT_EQ(observer_.steps.size(), 120u);
  EXPECT_EQ(observer_.steps.back().mode, kMixedFp16);
  EXPECT_EQ(OptimizerSteps(), static_cast<double>(120 - finished.progress().skipped_steps()));
  EXPECT_LT(observer_.steps.back().loss, 0.7 * observer_.steps.front().loss);
}

TEST_F(RecoveryTest, OneBatchOfBadDataIsPassedOverInEveryMode) {
  for (const PrecisionMode mode : {kFp32, kMixedBf16, kMixedFp16, kFp16}) {
    observer_ = RecordingObserver();
    job_.mutable_spec()->clear_rehearsals();
    job_.mutable_spec()->mutable_training()->set_gradient_accumulation_steps(2);
    Rehearse(training::v1::REHEARSAL_KIND_NAN, 60, 1, 1);
    job_.mutable_spec()->mutable_rehearsals(0)->set_micro_batch(1);
    RunIn(mode);
    const Finished finished = Run();
    ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
    EXPECT_THAT(observer_.changes, IsEmpty());
    ASSERT_THAT(Rules(), ElementsAre("non_finite")) << observer_.log;
    const training::v1::Incident& incident = observer_.incidents[0];
    EXPECT_EQ(incident.step(), 60);
    EXPECT_EQ(incident.verdict(), "data");
    EXPECT_EQ(incident.micro_batch(), 1);
    EXPECT_EQ(incident.examples_size(), 16);
    EXPECT_EQ(observer_.steps.size(), 120u);
    EXPECT_TRUE(observer_.steps[59].skipped);
    EXPECT_EQ(OptimizerSteps(), static_cast<double>(120 - finished.progress().skipped_steps()));
  }
}

TEST_F(RecoveryTest, BadDataWithoutEndFailsTheJob) {
  Rehearse(training::v1::REHEARSAL_KIND_NAN, 60, 60, 1);
  const Finished finished = Run();
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_DATA);
  EXPECT_THAT(finished.failure().message(), HasSubstr("10 batches in a row"));
}

TEST_F(RecoveryTest, ALossThatRunsAwayGoesBackToTheLastGoodStateInFp32) {
  const Finished fp32 = Run();
  ASSERT_GT(fp32.curve().steps_size(), 0);
  const std::vector<double> wanted = Losses();
  observer_ = RecordingObserver();
  *job_.mutable_baseline() = fp32.curve();
  precision().add_fallbacks(kFp32);
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(50);
  Rehearse(training::v1::REHEARSAL_KIND_SPIKE, 60, 60, 1000);
  RunIn(kMixedBf16);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  ASSERT_EQ(observer_.changes.size(), 1u) << observer_.log;
  EXPECT_EQ(observer_.changes[0].trigger(), "divergence");
  EXPECT_EQ(observer_.changes[0].resumed_step(), 50);
  EXPECT_GE(observer_.changes[0].step(), 60);
  EXPECT_EQ(finished.progress().step(), 120);
  EXPECT_NEAR(finished.progress().loss(), wanted.back(), 0.1 * wanted.back());
  EXPECT_FALSE(finished.has_curve());
}

TEST_F(RecoveryTest, ADivergingLearningRateEndsInFp32WithTheReason) {
  job_.mutable_spec()->mutable_optimizer()->set_learning_rate(1e30);
  RunIn(kMixedBf16);
  const Finished finished = Run();
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_NON_FINITE);
  EXPECT_THAT(finished.failure().message(), HasSubstr("in FP32"));
  EXPECT_THAT(finished.failure().message(), HasSubstr("verdict: divergence"));
  EXPECT_THAT(finished.failure().message(),
              HasSubstr("lower optimizer.learning_rate (it is 1e+30"));
  ASSERT_GE(observer_.changes.size(), 1u);
  EXPECT_EQ(observer_.changes[0].trigger(), "non_finite");
  EXPECT_EQ(observer_.changes[0].resumed_step(), 0);
}

TEST_F(RecoveryTest, NonFiniteStepsFallBackOnlyBeyondTheirShareOfTheWindow) {
  job_.mutable_spec()->mutable_optimizer()->set_learning_rate(1e30);
  precision().mutable_watchdog()->mutable_non_finite()->set_threshold(0.5);
  precision().mutable_watchdog()->mutable_non_finite()->set_window_steps(8);
  RunIn(kMixedBf16);
  Run();
  ASSERT_GE(observer_.changes.size(), 1u) << observer_.log;
  EXPECT_EQ(observer_.changes[0].trigger(), "non_finite");
  ASSERT_GE(observer_.incidents.size(), 5u);
  // Four of eight are half, five are more. One more step was in flight.
  EXPECT_EQ(observer_.changes[0].step(), observer_.incidents[4].step() + 1);
}

TEST_F(RecoveryTest, ASlowModeFallsBackWhereThatIsEnforced) {
  job_.mutable_baseline()->add_steps(1);
  job_.mutable_baseline()->add_losses(1);
  job_.mutable_baseline()->set_step_seconds(0.0005);
  training::v1::WatchdogRule& slowdown = *precision().mutable_watchdog()->mutable_slowdown();
  slowdown.set_action(training::v1::WATCHDOG_ACTION_ENFORCE);
  slowdown.set_window_steps(5);
  precision().add_fallbacks(kFp32);
  Rehearse(training::v1::REHEARSAL_KIND_SLOW, 1, 200, 0.02);
  RunIn(kMixedBf16);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1u) << observer_.log;
  EXPECT_EQ(observer_.changes[0].trigger(), "slowdown");
  EXPECT_EQ(observer_.changes[0].to(), kFp32);
  EXPECT_LE(observer_.changes[0].step(), 10);
  // The two times in the reason are those of the injected delay and FP32, and match its ratio.
  double slow = 0;
  double fp32 = 0;
  double speed = 0;
  ASSERT_EQ(std::sscanf(observer_.changes[0].reason().c_str(),
                        "a step takes %lf s where FP32 takes %lf s, measured in turn: %lf times",
                        &slow, &fp32, &speed),
            3)
      << observer_.changes[0].reason();
  EXPECT_GT(slow, 0.02);
  EXPECT_LT(fp32, 0.02);
  EXPECT_NEAR(speed, fp32 / slow, 0.01);
}

TEST_F(RecoveryTest, AModeThatIsNoSlowerThanFp32WasStaysWhereSlownessIsEnforced) {
  job_.mutable_baseline()->add_steps(1);
  job_.mutable_baseline()->add_losses(1);
  job_.mutable_baseline()->set_step_seconds(10);
  training::v1::WatchdogRule& slowdown = *precision().mutable_watchdog()->mutable_slowdown();
  slowdown.set_action(training::v1::WATCHDOG_ACTION_ENFORCE);
  slowdown.set_window_steps(5);
  precision().add_fallbacks(kFp32);
  Rehearse(training::v1::REHEARSAL_KIND_SLOW, 1, 20, 0.02);
  RunIn(kMixedBf16);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_THAT(observer_.changes, IsEmpty()) << observer_.log;
  EXPECT_EQ(observer_.steps.back().mode, kMixedBf16);
}

TEST_F(RecoveryTest, AJobWithoutABaselineIsCalibratedReportsNoneAndBeginsAfresh) {
  RunIn(kMixedBf16);
  precision().set_calibration_steps(60);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  const std::vector<double> measured = Losses();
  for (const training::v1::Steps& report : observer_.reports) {
    EXPECT_EQ(report.progress().baseline_loss(), 0);
    EXPECT_FALSE(report.progress().has_divergence_ratio());
  }
  EXPECT_EQ(observer_.steps.front().step, 1);
  observer_ = RecordingObserver();
  job_.mutable_baseline()->add_steps(1);
  job_.mutable_baseline()->add_losses(1);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(Losses(), measured);
}

TEST_F(RecoveryTest, AdviceIsRecordedAndChangesNothing) {
  RunIn(kMixedFp16);
  precision().set_min_loss_scale(1e-30);
  precision().mutable_watchdog()->mutable_overflow()->set_action(
      training::v1::WATCHDOG_ACTION_ADVISE);
  OverflowStorm(40, 50);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_THAT(observer_.changes, IsEmpty());
  EXPECT_THAT(Rules(), Contains("overflow"));
  EXPECT_EQ(observer_.steps.back().mode, kMixedFp16);
}

TEST_F(RecoveryTest, AJobThatFellBackContinuesThereAfterACrash) {
  RunIn(kMixedFp16);
  precision().set_loss_scale(16);
  precision().add_fallbacks(kFp32);
  OverflowStorm(20, 8);
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(60);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  const std::vector<double> whole = Losses();
  job_.add_resume_from(observer_.checkpoints[0].checkpoint().path());
  observer_ = RecordingObserver();
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(observer_.started.resumed_step(), 60);
  EXPECT_EQ(observer_.started.precision().mode(), kFp32);
  EXPECT_THAT(observer_.started.precision().reason(), HasSubstr("fell back from MIXED_FP16"));
  EXPECT_EQ(Losses(), std::vector<double>(whole.begin() + 60, whole.end()));
}

TEST_F(RecoveryTest, PureFormatsTrainOnTheirMasters) {
  for (const PrecisionMode mode : {kFp16, training::v1::PRECISION_MODE_BF16}) {
    observer_ = RecordingObserver();
    RunIn(mode);
    const Finished finished = Run();
    ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
    EXPECT_LT(observer_.steps.back().loss, 0.7 * observer_.steps.front().loss);
    EXPECT_EQ(finished.progress().reduced_precision_steps(), 120);
  }
}

TEST_F(RecoveryTest, AutoMeasuresAndExplainsItsChoiceAndBeginsAfresh) {
  RunIn(training::v1::PRECISION_MODE_AUTO);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  const training::v1::EffectivePrecision chosen = observer_.started.precision();
  const auto& results = chosen.report().calibration();
  // FP32 and the modes that the job allows.
  ASSERT_EQ(results.size(), 4) << chosen.ShortDebugString();
  EXPECT_EQ(results[0].mode(), kFp32);
  for (const training::v1::CalibrationResult& result : results) {
    EXPECT_GT(result.step_seconds(), 0);
    EXPECT_FALSE(result.verdict().empty());
    EXPECT_EQ(absl::StartsWith(result.verdict(), "chosen"), result.mode() == chosen.mode());
  }
  EXPECT_THAT(chosen.reason(), HasSubstr("measured over 12 steps: FP32"));
  const std::vector<double> automatic = Losses();
  observer_ = RecordingObserver();
  RunIn(chosen.mode());
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(Losses(), automatic);
}

// Injects a known delay and measures FP32 with the test's own clock.
TEST_F(RecoveryTest, AutoRefusesAModeThatIsKnownToBeSlowAndTimesFp32AsThisTestDoes) {
  constexpr double kSlow = 0.05;
  Rehearse(training::v1::REHEARSAL_KIND_SLOW, 1, 12, kSlow);
  RunIn(training::v1::PRECISION_MODE_AUTO);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  const training::v1::EffectivePrecision chosen = observer_.started.precision();
  EXPECT_EQ(chosen.mode(), kFp32);
  const auto& results = chosen.report().calibration();
  ASSERT_EQ(results.size(), 4);
  const double fp32 = results[0].step_seconds();
  for (int i = 1; i < results.size(); ++i) {
    EXPECT_GT(results[i].step_seconds(), kSlow);
    EXPECT_THAT(results[i].verdict(),
                HasSubstr(absl::StrFormat("refused: %.2f times the speed of FP32",
                                          fp32 / results[i].step_seconds())));
  }
  observer_ = RecordingObserver();
  std::vector<double> seconds;
  auto before = std::chrono::steady_clock::now();
  observer_.on_step = [&](int64_t step) {
    const auto now = std::chrono::steady_clock::now();
    // The first steps select algorithms and fill caches.
    if (step > 2) seconds.push_back(std::chrono::duration<double>(now - before).count());
    before = now;
  };
  RunIn(kFp32);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  std::sort(seconds.begin(), seconds.end());
  // Must be between half of the shortest and twice the longest time. The longest tenth is ignored,
  // because other programs may have delayed those steps.
  EXPECT_GT(fp32, seconds.front() / 2);
  EXPECT_LT(fp32, 2 * seconds[seconds.size() * 9 / 10]);
  EXPECT_LT(fp32, kSlow);
}

TEST_F(RecoveryTest, EvaluatesStopsEarlyAndKeepsTheBest) {
  job_.mutable_spec()->mutable_evaluation()->set_every_steps(10);
  job_.mutable_spec()->mutable_evaluation()->set_patience(2);
  job_.mutable_spec()->mutable_evaluation()->set_min_improvement(100);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(finished.progress().step(), 30);  // The first evaluation and two without improvement.
  EXPECT_THAT(finished.early_end(), HasSubstr("2 evaluations in a row did not improve"));
  ASSERT_EQ(observer_.evaluations.size(), 3u);
  EXPECT_TRUE(observer_.evaluations[0].best());
  EXPECT_FALSE(observer_.evaluations[1].best());
  EXPECT_TRUE(observer_.checkpoints.back().checkpoint().has_held_out_loss());
}

TEST_F(RecoveryTest, FollowsWhatCallersReport) {
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(10);
  job_.mutable_spec()->mutable_checkpoint()->set_keep_last(1);
  job_.mutable_spec()->mutable_checkpoint()->set_keep_best(1);
  training::v1::EvaluationSpec& evaluation = *job_.mutable_spec()->mutable_evaluation();
  evaluation.set_metric("return");
  evaluation.set_mode(training::v1::METRIC_MODE_MAX);
  evaluation.set_every_steps(5);
  evaluation.set_patience(1);
  evaluation.set_min_improvement(1e6);
  training::v1::MetricValues values;
  for (const auto& [step, value] : std::map<int64_t, double>{{10, 7}, {20, -9}}) {
    values.add_steps(step);
    values.add_values(value);
  }
  control_.SetMetricValues(values);
  observer_.on_step = [&](int64_t step) {
    if (step < 33) return;
    values.set_early_end("the target is reached");
    control_.SetMetricValues(values);
  };
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(finished.early_end(), "the target is reached");
  const int64_t last = finished.progress().step();
  EXPECT_GE(last, 33);
  EXPECT_LT(last, 40);
  EXPECT_TRUE(observer_.evaluations[1].best()) << "the held-out loss has no margin";
  std::vector<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(job_.checkpoint_dir())) {
    if (entry.path().extension() == ".pt") kept.push_back(entry.path().stem().string());
  }
  EXPECT_THAT(kept, testing::UnorderedElementsAre("tiny-step-000000000010",
                                                  absl::StrFormat("tiny-step-%012d", last)));
}

TEST_F(RecoveryTest, StopsAtATargetLossAndAtATimeLimit) {
  job_.mutable_spec()->mutable_evaluation()->set_every_steps(10);
  job_.mutable_spec()->mutable_training()->set_target_loss(1e6);
  const Finished at_target = Run();
  EXPECT_EQ(at_target.progress().step(), 10);
  EXPECT_THAT(at_target.early_end(), HasSubstr("training.target_loss is 1e+06"));
  job_.mutable_spec()->mutable_training()->set_target_loss(0);
  job_.mutable_spec()->mutable_training()->set_time_limit_seconds(1e-9);
  const Finished in_time = Run();
  EXPECT_EQ(in_time.outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_THAT(in_time.early_end(), HasSubstr("training.time_limit_seconds is 1e-09"));
}

}  // namespace
}  // namespace genesis
