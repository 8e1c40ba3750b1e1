// The trials of a sweep, and the rules by which they are compared and stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "config/job/job_spec.h"
#include "server/sweeps/halving.h"
#include "server/sweeps/search_space.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using training::v1::Sweep;
using training::v1::SweepSpec;
using training::v1::Trial;

SweepSpec Base() {
  SweepSpec spec;
  spec.mutable_job()->mutable_model()->mutable_world_model()->set_hidden_size(32);
  spec.mutable_job()->mutable_dataset()->mutable_trajectories()->set_path("pendulum.npz");
  spec.mutable_job()->mutable_training()->set_max_steps(1000);
  spec.mutable_job()->mutable_evaluation()->set_every_steps(10);
  return spec;
}

void AddValues(const std::string& field, const std::vector<std::string>& values, SweepSpec& spec) {
  auto& parameter = *spec.add_parameters();
  parameter.set_field(field);
  for (const std::string& each : values) *parameter.add_values() = each;
}

void AddRange(const std::string& field, double low, double high, bool log, SweepSpec& spec) {
  auto& parameter = *spec.add_parameters();
  parameter.set_field(field);
  parameter.mutable_range()->set_low(low);
  parameter.mutable_range()->set_high(high);
  parameter.mutable_range()->set_log(log);
}

std::string FaultsOf(const SweepSpec& spec) {
  std::string text;
  for (const FieldError& each : ValidateSweep(spec)) absl::StrAppend(&text, each.ToString(), "\n");
  return text;
}

Sweep SweepOf(const SweepSpec& spec) {
  Sweep sweep;
  sweep.set_id("s");
  *sweep.mutable_spec() = WithSweepDefaults(spec);
  for (int i = 0; i < CountTrials(spec); ++i) sweep.add_trials()->set_number(i);
  return sweep;
}

TEST(SearchSpace, AGridHasEveryCombinationAndTheLastParameterVariesFastest) {
  SweepSpec spec = Base();
  AddValues("optimizer.learning_rate", {"0.1", "1e-3"}, spec);
  AddValues("precision.mode", {"FP32", "BF16", "MIXED_BF16"}, spec);
  EXPECT_EQ(FaultsOf(spec), "");
  ASSERT_EQ(CountTrials(spec), 6);
  EXPECT_THAT(TrialParameters(spec, 4),
              ElementsAre(Pair("optimizer.learning_rate", "1e-3"), Pair("precision.mode", "BF16")));
  const training::v1::JobSpec job = TrialJob(SweepOf(spec), 4);
  EXPECT_EQ(job.optimizer().learning_rate(), 1e-3);
  EXPECT_EQ(job.precision().mode(), training::v1::PRECISION_MODE_BF16);
  EXPECT_EQ(job.training().max_steps(), 1000) << "other fields are those of the job";
  EXPECT_EQ(job.scheduling().labels().at("optimizer.learning_rate"), "1e-3");
  EXPECT_EQ(job.scheduling().labels().at("sweep"), "s");
}

TEST(SearchSpace, ARandomTrialDependsOnSeedAndNumberAlone) {
  SweepSpec spec = Base();
  AddRange("optimizer.learning_rate", 1e-5, 1e-1, /*log=*/true, spec);
  AddRange("training.batch_size", 16, 64, /*log=*/false, spec);
  AddValues("optimizer.kind", {"ADAMW", "SGD"}, spec);
  spec.set_random_trials(200);
  spec.set_seed(7);
  EXPECT_EQ(FaultsOf(spec), "");
  const auto third = TrialParameters(spec, 3);
  spec.set_random_trials(300);
  EXPECT_EQ(TrialParameters(spec, 3), third) << "more trials do not change the first ones";
  int small = 0;
  std::set<std::string> batches;
  std::set<std::string> kinds;
  for (int i = 0; i < 300; ++i) {
    const training::v1::JobSpec job = TrialJob(SweepOf(spec), i);
    const double rate = job.optimizer().learning_rate();
    ASSERT_GE(rate, 1e-5);
    ASSERT_LE(rate, 1e-1);
    EXPECT_EQ(std::to_string(rate),
              std::to_string(std::stod(job.scheduling().labels().at("optimizer.learning_rate"))));
    small += rate < 1e-3 ? 1 : 0;
    ASSERT_GE(job.training().batch_size(), 16);
    ASSERT_LE(job.training().batch_size(), 64);
    batches.insert(job.scheduling().labels().at("training.batch_size"));
    kinds.insert(job.scheduling().labels().at("optimizer.kind"));
  }
  EXPECT_NEAR(small, 150, 45) << "half of the draws are below the middle of the logarithm";
  EXPECT_GT(batches.size(), 30U);
  EXPECT_EQ(kinds.size(), 2U);
  spec.set_seed(8);
  EXPECT_NE(TrialParameters(spec, 3), third);
}

TEST(SearchSpace, WholeNumbersOfARangeAreEquallyLikely) {
  for (const bool log : {false, true}) {
    SweepSpec spec = Base();
    spec.set_random_trials(1000);
    AddRange("training.batch_size", 1, 4, log, spec);
    std::map<std::string, int> drawn;
    for (int i = 0; i < 1000; ++i) ++drawn[TrialParameters(spec, i).at("training.batch_size")];
    ASSERT_EQ(drawn.size(), 4U);
    for (const auto& [number, count] : drawn) {
      const double n = std::stod(number);
      const double share = log ? std::log((n + 0.5) / (n - 0.5)) / std::log(9.0) : 0.25;
      EXPECT_NEAR(count, 1000 * share, 50) << number << (log ? " of the logarithm" : "");
    }
  }
}

TEST(SearchSpace, AListOfATrialReplacesThatOfTheJob) {
  SweepSpec spec = Base();
  auto* points = spec.mutable_job()->mutable_optimizer()->mutable_schedule();
  points->set_kind(training::v1::SCHEDULE_KIND_TABLE);
  points->add_points()->set_factor(1);
  AddValues("optimizer.schedule.points", {"[{step: 0, factor: 1}, {step: 9, factor: 0.5}]"}, spec);
  EXPECT_EQ(FaultsOf(spec), "");
  const training::v1::JobSpec job = TrialJob(SweepOf(spec), 0);
  ASSERT_EQ(job.optimizer().schedule().points_size(), 2);
  EXPECT_EQ(job.optimizer().schedule().points(1).factor(), 0.5);
}

TEST(SearchSpace, AnotherKindHasItsOwnDefaults) {
  SweepSpec spec = Base();
  spec.mutable_job()->mutable_optimizer()->set_epsilon(1e-7);
  AddValues("optimizer.kind", {"ADAM", "SGD"}, spec);
  // As the daemon shows it: with the defaults of ADAMW.
  *spec.mutable_job() = WithDefaults(spec.job(), LossScaleSettings());
  EXPECT_THAT(FaultsOf(spec), HasSubstr("optimizer.epsilon: 1e-07 conflicts")) << "it was given";
  spec.mutable_job()->mutable_optimizer()->set_epsilon(1e-8);
  EXPECT_EQ(FaultsOf(spec), "");
  const auto optimizer = [&spec](int trial) {
    return WithDefaults(TrialJob(SweepOf(spec), trial), LossScaleSettings()).optimizer();
  };
  EXPECT_EQ(optimizer(0).beta1(), 0.9);
  EXPECT_EQ(optimizer(0).weight_decay(), -1);
  EXPECT_EQ(optimizer(1).beta1(), 0);
  EXPECT_EQ(optimizer(1).learning_rate(), spec.job().optimizer().learning_rate());
}

TEST(SearchSpace, AnotherModelConflictsWithThatOfTheJob) {
  SweepSpec spec = Base();
  AddValues("model.transformer.layers", {"2"}, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("model.transformer: conflicts with world_model"));
}

TEST(SearchSpace, ErrorsNameTheFieldTheValueAndTheTrial) {
  EXPECT_THAT(FaultsOf(SweepSpec()), HasSubstr("job: required"));
  EXPECT_THAT(FaultsOf(Base()), HasSubstr("parameters: required"));

  SweepSpec spec = Base();
  AddValues("optimizer.learning_rate", {"0.1", "-4"}, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("trial 1 (optimizer.learning_rate=-4): "
                                        "optimizer.learning_rate is -4; accepted: "));
  spec = Base();
  AddValues("optimizer.learning_rat", {"0.1"}, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("did you mean optimizer.learning_rate?"));
  spec = Base();
  AddValues("optimizer.learning_rate", {"[", "0.1"}, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("\"[\"; accepted: a YAML value"));
  spec = Base();
  AddValues("optimizer.learning_rate", {"0.1"}, spec);
  AddValues("optimizer.learning_rate", {"0.2"}, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("a field that no other parameter names"));
  spec = Base();
  AddRange("optimizer.learning_rate", 0, 1, false, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("a grid has no ranges"));
  spec.set_random_trials(3);
  spec.mutable_parameters(0)->mutable_range()->set_log(true);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("parameters[0].range.low is 0; accepted: > 0"));
  spec.mutable_parameters(0)->mutable_range()->set_low(std::nan(""));
  EXPECT_THAT(FaultsOf(spec), HasSubstr("two finite numbers, low < high"));
  spec.mutable_parameters(0)->clear_range();
  EXPECT_THAT(FaultsOf(spec), HasSubstr("either values or a range"));
  spec.set_random_trials(1001);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("random_trials is 1001; accepted: 1 to 1000"));
  spec = Base();
  std::vector<std::string> many(64);
  for (int i = 0; i < 64; ++i) many[static_cast<size_t>(i)] = absl::StrCat(i + 1);
  AddValues("training.batch_size", many, spec);
  AddValues("training.seed", many, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("the grid has more than 1000 combinations"));
  spec = Base();
  AddValues("training.seed", {std::string(64, '1')}, spec);
  EXPECT_THAT(FaultsOf(spec), HasSubstr("at most 63 bytes"));
  spec = Base();
  AddValues("training.seed", {"1"}, spec);
  (*spec.mutable_job()->mutable_scheduling()->mutable_labels())["sweep"] = "mine";
  EXPECT_THAT(FaultsOf(spec), HasSubstr("no label of this name"));
  spec = Base();
  AddValues("training.seed", {"1"}, spec);
  spec.mutable_halving()->set_reduction_factor(1);
  spec.mutable_job()->clear_evaluation();
  EXPECT_THAT(FaultsOf(spec), HasSubstr("halving.reduction_factor is 1; accepted: 2 to 16"));
  EXPECT_THAT(FaultsOf(spec), HasSubstr("halving.first_rung_steps: required"));
}

class Halving : public testing::Test {
 protected:
  Halving() {
    SweepSpec spec = Base();
    AddValues("training.seed", {"1", "2", "3", "4", "5", "6", "7", "8", "9"}, spec);
    spec.mutable_halving();
    sweep_ = SweepOf(spec);
  }

  // Returns why the trial loses after an evaluation; "" if it goes on.
  std::string Evaluate(int trial, int64_t step, double loss) {
    training::v1::Evaluation evaluation;
    evaluation.set_step(step);
    evaluation.set_loss(loss);
    (*evaluation.mutable_metrics())["accuracy"] = 1 - loss;
    Trial& changed = *sweep_.mutable_trials(trial);
    return NoteEvaluation(evaluation, sweep_, changed) > 0 ? WhyItLoses(sweep_, changed) : "";
  }

  Sweep sweep_;
};

// Rungs at the steps 10, 30, 90 ...; a third goes on.
TEST_F(Halving, TheBestThirdOfThoseThatReachedARungGoesOn) {
  EXPECT_EQ(Evaluate(0, 10, 0.5), "") << "the first is the best";
  EXPECT_EQ(Evaluate(1, 10, 0.4), "") << "the best of two";
  EXPECT_EQ(Evaluate(2, 10, 0.6), "loss 0.6 at step 10 is not among the best 1 of 3 at rung 0");
  EXPECT_EQ(Evaluate(3, 10, 0.45), "loss 0.45 at step 10 is not among the best 1 of 4 at rung 0");
  EXPECT_NE(Evaluate(4, 10, 0.55), "");
  EXPECT_EQ(Evaluate(5, 10, 0.42), "") << "the second of six";
  EXPECT_EQ(Evaluate(0, 20, 0.9), "") << "no rung is at step 20";
  EXPECT_EQ(Evaluate(0, 30, 0.3), "") << "the first at rung 1";
  EXPECT_NE(Evaluate(1, 30, 0.31), "");
  EXPECT_EQ(sweep_.trials(0).rungs_size(), 2);
  EXPECT_EQ(sweep_.trials(0).best_value(), 0.3);
  EXPECT_EQ(sweep_.trials(0).best_step(), 30);
  SetBestTrial(sweep_);
  EXPECT_EQ(sweep_.best_trial(), 0);
}

TEST_F(Halving, ANumberThatIsNotFiniteIsTheWorst) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Evaluate(0, 10, nan), HasSubstr("loss nan at step 10")) << "though it is the first";
  EXPECT_NE(Evaluate(1, 10, std::numeric_limits<double>::infinity()), "");
  SetBestTrial(sweep_);
  EXPECT_FALSE(sweep_.has_best_trial());
  EXPECT_EQ(Evaluate(2, 10, 7), "");
  EXPECT_EQ(Evaluate(0, 20, 8), "");
  EXPECT_EQ(sweep_.trials(0).best_value(), 8);
  SetBestTrial(sweep_);
  EXPECT_EQ(sweep_.best_trial(), 2);
}

TEST_F(Halving, StepsMadeAgainReplaceTheRungsFromThere) {
  Evaluate(0, 10, 0.5);
  Evaluate(0, 30, 0.4);
  Evaluate(0, 90, 0.3);
  EXPECT_EQ(sweep_.trials(0).rungs_size(), 3);
  Evaluate(0, 30, 0.45);  // Continued from a checkpoint at step 20.
  ASSERT_EQ(sweep_.trials(0).rungs_size(), 2);
  EXPECT_EQ(sweep_.trials(0).rungs(0).value(), 0.5);
  EXPECT_EQ(sweep_.trials(0).rungs(1).value(), 0.45);
}

TEST_F(Halving, TheBestValueOfStepsThatAreGoneIsForgotten) {
  Evaluate(0, 10, 0.5);
  Evaluate(0, 30, 0.1);
  Evaluate(0, 20, 0.6);  // Went back before step 30.
  EXPECT_EQ(sweep_.trials(0).best_value(), 0.6);
  EXPECT_EQ(sweep_.trials(0).best_step(), 20);
  Evaluate(0, 30, 0.7);
  EXPECT_EQ(sweep_.trials(0).best_value(), 0.6);
}

TEST_F(Halving, ATrialThatWasStoppedIsNotTheBestOfOthersThatWentOn) {
  Evaluate(0, 10, 0.1);
  sweep_.mutable_trials(0)->set_stopped_early(true);
  SetBestTrial(sweep_);
  EXPECT_EQ(sweep_.best_trial(), 0) << "no other has a value";
  Evaluate(1, 10, 0.9);
  SetBestTrial(sweep_);
  EXPECT_EQ(sweep_.best_trial(), 1);
  Evaluate(2, 10, 0.8);
  SetBestTrial(sweep_);
  EXPECT_EQ(sweep_.best_trial(), 2);
}

TEST_F(Halving, AMetricThatIsMissingIsSaidWithThoseThatAreThere) {
  training::v1::Evaluation evaluation;
  (*evaluation.mutable_metrics())["reward_error"] = 1;
  EXPECT_EQ(MissingMetric(sweep_.spec(), evaluation), "");
  sweep_.mutable_spec()->set_metric("reward_eror");
  EXPECT_EQ(MissingMetric(sweep_.spec(), evaluation),
            "its evaluations have no metric \"reward_eror\"; they have \"loss\", "
            "\"reward_error\"");
}

TEST_F(Halving, AnEvaluationMayReachSeveralRungs) {
  Evaluate(0, 100, 0.5);
  ASSERT_EQ(sweep_.trials(0).rungs_size(), 3);
  EXPECT_EQ(sweep_.trials(0).rungs(2).step(), 100);
}

TEST_F(Halving, AnyMetricMayBeMaximized) {
  sweep_.mutable_spec()->set_metric("accuracy");
  sweep_.mutable_spec()->set_maximize(true);
  EXPECT_EQ(Evaluate(0, 10, 0.5), "");
  EXPECT_EQ(Evaluate(1, 10, 0.4), "") << "an accuracy of 0.6";
  EXPECT_EQ(Evaluate(2, 10, 0.7), "accuracy 0.3 at step 10 is not among the best 1 of 3 at rung 0");
  SetBestTrial(sweep_);
  EXPECT_EQ(sweep_.best_trial(), 1);
  sweep_.mutable_spec()->set_metric("no_such");
  EXPECT_EQ(Evaluate(3, 10, 0.1), "");
  EXPECT_FALSE(sweep_.trials(3).has_best_value());
}

}  // namespace
}  // namespace genesis
