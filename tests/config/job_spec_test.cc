#include "config/job/job_spec.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;
using training::v1::JobSpec;

JobSpec Smallest() {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_trajectories()->set_path("walks.npz");
  spec.mutable_training()->set_max_steps(100);
  return spec;
}

std::vector<std::string> FaultsOf(const JobSpec& spec) {
  std::vector<std::string> texts;
  for (const FieldError& error : ValidateJobSpec(spec)) texts.push_back(error.ToString());
  return texts;
}

std::vector<std::string> FaultsAfter(const std::function<void(JobSpec&)>& change) {
  JobSpec spec = Smallest();
  change(spec);
  return FaultsOf(spec);
}

TEST(JobSpecDefaultsTest, TheBatchSizeOfAnExportedModuleIsLeftToTheWorker) {
  JobSpec spec = Smallest();
  spec.mutable_model()->mutable_exported()->set_path("net.pt2");
  EXPECT_EQ(WithDefaults(spec, LossScaleSettings()).training().batch_size(), 0);
  EXPECT_EQ(WithDefaults(spec, LossScaleSettings()).training().gradient_accumulation_steps(), 1);
  spec.mutable_training()->set_batch_size(24);
  EXPECT_EQ(WithDefaults(spec, LossScaleSettings()).training().batch_size(), 24);
  // If the batch may shrink, the worker cannot choose its size, so the default is filled in.
  spec.mutable_training()->clear_batch_size();
  spec.mutable_scheduling()->set_shrink_on_out_of_memory(true);
  EXPECT_EQ(WithDefaults(spec, LossScaleSettings()).training().batch_size(), 128);
}

TEST(JobSpecDefaultsTest, AreFrozen) {
  const JobSpec spec = WithDefaults(Smallest(), LossScaleSettings());
  EXPECT_EQ(spec.model().world_model().hidden_size(), 256);
  EXPECT_EQ(spec.model().world_model().latent_size(), 64);
  EXPECT_EQ(spec.dataset().trajectories().holdout_fraction(), 0.1);
  EXPECT_EQ(spec.training().epochs(), 0);
  EXPECT_EQ(spec.training().batch_size(), 128);
  EXPECT_EQ(spec.training().gradient_accumulation_steps(), 1);
  EXPECT_EQ(spec.training().max_grad_norm(), 1.0);
  EXPECT_EQ(spec.training().seed(), 0u);
  EXPECT_EQ(spec.optimizer().learning_rate(), 1e-3);
  EXPECT_EQ(spec.optimizer().beta1(), 0.9);
  EXPECT_EQ(spec.optimizer().beta2(), 0.999);
  EXPECT_EQ(spec.optimizer().epsilon(), 1e-8);
  EXPECT_EQ(spec.optimizer().weight_decay(), 0.01);
  EXPECT_EQ(spec.precision().mode(), training::v1::PRECISION_MODE_UNSPECIFIED);
  EXPECT_EQ(spec.precision().loss_scale(), 65536.0);
  EXPECT_EQ(spec.precision().growth_factor(), 2.0);
  EXPECT_EQ(spec.precision().backoff_factor(), 0.5);
  EXPECT_EQ(spec.precision().growth_interval(), 2000);
  EXPECT_EQ(spec.precision().tf32(), training::v1::TF32_OFF);
  EXPECT_FALSE(spec.has_trace());
  EXPECT_EQ(spec.checkpoint().every_steps(), 0);
  EXPECT_EQ(spec.checkpoint().keep_last(), 3);
  EXPECT_EQ(spec.max_restarts(), 3);
}

TEST(JobSpecDefaultsTest, KeepWhatTheUserWrote) {
  JobSpec spec = WithDefaults(Smallest(), LossScaleSettings());
  spec.set_max_restarts(0);
  spec.mutable_optimizer()->set_beta1(-1);
  spec.mutable_training()->set_max_grad_norm(-1);
  spec.mutable_training()->set_batch_size(-4);
  spec.mutable_precision()->set_loss_scale(8);
  const LossScaleSettings others{
      .initial = 2, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 7};
  EXPECT_TRUE(MessageDifferencer::Equals(WithDefaults(spec, others), spec));
}

TEST(JobSpecDefaultsTest, TakeTheLossScaleFromTheDaemonOnlyForModesThatHaveOne) {
  const LossScaleSettings settings{
      .initial = 1024, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 7};
  JobSpec spec = Smallest();
  spec.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  EXPECT_EQ(WithDefaults(spec, settings).precision().loss_scale(), 1024);
  EXPECT_EQ(WithDefaults(spec, settings).precision().growth_interval(), 7);
  for (auto mode : {training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_MIXED_BF16}) {
    spec.mutable_precision()->set_mode(mode);
    EXPECT_EQ(WithDefaults(spec, settings).precision().loss_scale(), 0);
    EXPECT_EQ(WithDefaults(spec, settings).precision().growth_interval(), 0);
  }
}

TEST(JobSpecDefaultsTest, DoNotInventAModelOrADataset) {
  const JobSpec spec = WithDefaults(JobSpec(), LossScaleSettings());
  EXPECT_FALSE(spec.model().has_world_model());
  EXPECT_FALSE(spec.dataset().has_trajectories());
}

TEST(JobSpecValidationTest, AcceptsTheSmallestJobWithAndWithoutDefaults) {
  EXPECT_THAT(FaultsOf(Smallest()), IsEmpty());
  for (int mode : {0, 1, 4, 5}) {
    JobSpec spec = Smallest();
    spec.mutable_precision()->set_mode(static_cast<training::v1::PrecisionMode>(mode));
    EXPECT_THAT(FaultsOf(WithDefaults(spec, LossScaleSettings())), IsEmpty()) << mode;
  }
}

TEST(JobSpecValidationTest, AcceptsTheEdgesOfEveryRange) {
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_model()->mutable_world_model()->set_hidden_size(16384);
                spec.mutable_model()->mutable_world_model()->set_latent_size(1);
                spec.mutable_dataset()->mutable_trajectories()->set_holdout_fraction(0.5);
                spec.mutable_training()->set_max_steps(1'000'000'000'000);
                spec.mutable_training()->set_batch_size(1048576);
                spec.mutable_training()->set_gradient_accumulation_steps(65536);
                spec.mutable_training()->set_max_grad_norm(-1);
                spec.mutable_training()->set_seed(~0ULL);
                spec.mutable_optimizer()->set_beta1(-1);
                spec.mutable_optimizer()->set_beta2(-1);
                spec.mutable_optimizer()->set_weight_decay(-1);
                spec.mutable_checkpoint()->set_every_steps(1);
                spec.mutable_checkpoint()->set_keep_last(1000);
                spec.set_max_restarts(0);
              }),
              IsEmpty());
}

TEST(JobSpecValidationTest, NamesEveryFaultOfAnEmptyJobAtOnce) {
  EXPECT_THAT(
      FaultsOf(JobSpec()),
      ElementsAre("model: required; give it one kind of model: world_model, transformer, "
                  "radio_unet or exported",
                  "dataset: required; give it one kind of dataset: trajectories, replay, tokens, "
                  "arrays or synthetic",
                  "training: its length is required; give training.max_steps (1 to 1000000000000) "
                  "or training.epochs (1 to 1000000)"));
}

TEST(JobSpecValidationTest, RefusesValuesOutOfRangeInTheOrderOfTheProtocol) {
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        spec.mutable_model()->mutable_world_model()->set_hidden_size(16385);
        spec.mutable_model()->mutable_world_model()->set_latent_size(-1);
        spec.mutable_dataset()->mutable_trajectories()->set_holdout_fraction(0.6);
        spec.mutable_training()->set_max_steps(-1);
        spec.mutable_training()->set_batch_size(-4);
        spec.mutable_training()->set_gradient_accumulation_steps(65537);
        spec.mutable_training()->set_max_grad_norm(-0.5);
        spec.mutable_optimizer()->set_learning_rate(-1e-3);
        spec.mutable_optimizer()->set_beta1(1);
        spec.mutable_optimizer()->set_beta2(-0.5);
        spec.mutable_optimizer()->set_epsilon(-1);
        spec.mutable_optimizer()->set_weight_decay(-2);
        spec.mutable_precision()->set_loss_scale(-1);
        spec.mutable_precision()->set_growth_factor(1);
        spec.mutable_precision()->set_backoff_factor(1);
        spec.mutable_precision()->set_growth_interval(-1);
        spec.mutable_checkpoint()->set_every_steps(-1);
        spec.mutable_checkpoint()->set_keep_last(1001);
        spec.set_max_restarts(1001);
      }),
      ElementsAre("model.world_model.hidden_size is 16385; accepted: 1 to 16384",
                  "model.world_model.latent_size is -1; accepted: 1 to 16384",
                  "dataset.trajectories.holdout_fraction is 0.6; accepted: above 0, at most 0.5",
                  "training.max_steps is -1; accepted: 1 to 1000000000000",
                  "training.batch_size is -4; accepted: 1 to 1048576",
                  "training.gradient_accumulation_steps is 65537; accepted: 1 to 65536",
                  "training.max_grad_norm is -0.5; accepted: a finite number > 0, or -1 for no "
                  "clipping",
                  "optimizer.learning_rate is -0.001; accepted: a finite number > 0",
                  "optimizer.beta1 is 1; accepted: above 0 and below 1, or -1 for 0",
                  "optimizer.beta2 is -0.5; accepted: above 0 and below 1, or -1 for 0",
                  "optimizer.epsilon is -1; accepted: a finite number > 0",
                  "optimizer.weight_decay is -2; accepted: a finite number > 0, or -1 for no decay",
                  "checkpoint.every_steps is -1; accepted: >= 1, or 0 for one at the end",
                  "checkpoint.keep_last is 1001; accepted: 1 to 1000",
                  "precision.loss_scale is -1; accepted: a finite float > 0",
                  "precision.growth_factor is 1; accepted: a finite number > 1",
                  "precision.backoff_factor is 1; accepted: above 0 and below 1",
                  "precision.growth_interval is -1; accepted: >= 1",
                  "max_restarts is 1001; accepted: 0 to 1000"));
}

TEST(JobSpecValidationTest, RefusesNanAndInfinityInEveryNumber) {
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const JobSpec spec = [&] {
      JobSpec s = Smallest();
      s.mutable_dataset()->mutable_trajectories()->set_holdout_fraction(bad);
      s.mutable_training()->set_max_grad_norm(bad);
      s.mutable_optimizer()->set_learning_rate(bad);
      s.mutable_optimizer()->set_beta1(bad);
      s.mutable_optimizer()->set_beta2(bad);
      s.mutable_optimizer()->set_epsilon(bad);
      s.mutable_optimizer()->set_weight_decay(bad);
      s.mutable_precision()->set_loss_scale(bad);
      s.mutable_precision()->set_growth_factor(bad);
      s.mutable_precision()->set_backoff_factor(bad);
      return s;
    }();
    EXPECT_EQ(FaultsOf(spec).size(), 10u) << bad;
  }
}

TEST(JobSpecValidationTest, RefusesALossScaleThatIsNoFloat) {
  EXPECT_THAT(FaultsAfter([](JobSpec& s) { s.mutable_precision()->set_loss_scale(1e39); }),
              ElementsAre("precision.loss_scale is 1e+39; accepted: a finite float > 0"));
  EXPECT_THAT(FaultsAfter([](JobSpec& s) { s.mutable_precision()->set_loss_scale(1e-60); }),
              ElementsAre("precision.loss_scale is 1e-60; accepted: a finite float > 0"));
}

TEST(JobSpecValidationTest, RefusesStepsTogetherWithEpochs) {
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) { spec.mutable_training()->set_epochs(3); }),
      ElementsAre("training.max_steps: 100 conflicts with training.epochs 3; give one of the two"));
}

TEST(JobSpecValidationTest, TakesEveryModeOfTheProtocolAndNoOther) {
  for (int mode = 0; mode < training::v1::PrecisionMode_ARRAYSIZE; ++mode) {
    JobSpec spec = Smallest();
    spec.mutable_precision()->set_mode(static_cast<training::v1::PrecisionMode>(mode));
    EXPECT_THAT(FaultsOf(spec), IsEmpty()) << mode;
    // A stored specification is validated again if it is resubmitted.
    EXPECT_THAT(FaultsOf(WithDefaults(spec, LossScaleSettings())), IsEmpty()) << mode;
  }
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_precision()->set_mode(static_cast<training::v1::PrecisionMode>(17));
              }),
              ElementsAre("precision.mode is 17; accepted: FP32, FP16, BF16, MIXED_FP16, "
                          "MIXED_BF16, AUTO"));
}

TEST(JobSpecValidationTest, NamesOtherFaultsBesideAnUnknownMode) {
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_precision()->set_mode(static_cast<training::v1::PrecisionMode>(17));
                spec.mutable_precision()->set_growth_interval(-4);
                spec.add_rehearsals()->set_at_step(2);
              }),
              ElementsAre(StartsWith("precision.mode is 17; "),
                          StartsWith("precision.growth_interval is -4; "),
                          StartsWith("rehearsals[0].kind: required; ")));
}

TEST(JobSpecValidationTest, NamesBothPlacesOfConflictsAroundPrecision) {
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        spec.mutable_precision()->set_loss_scale(8);
        spec.mutable_precision()->set_min_loss_scale(16);
        spec.mutable_precision()->set_max_loss_scale(4);
      }),
      ElementsAre("precision.min_loss_scale: 16 conflicts with precision.loss_scale 8, which "
                  "has to be at least as large",
                  "precision.loss_scale: 8 conflicts with precision.max_loss_scale 4, which "
                  "has to be at least as large"));
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        spec.mutable_precision()->set_mode(training::v1::PRECISION_MODE_BF16);
        spec.mutable_precision()->add_fallbacks(training::v1::PRECISION_MODE_BF16);
        spec.mutable_precision()->add_fallbacks(training::v1::PRECISION_MODE_AUTO);
      }),
      ElementsAre("precision.fallbacks[0]: BF16 conflicts with precision.mode, which is the "
                  "same; a job cannot fall back to what it left",
                  "precision.fallbacks[1] is AUTO; accepted: FP32, FP16, BF16, MIXED_FP16 "
                  "or MIXED_BF16"));
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        spec.mutable_precision()->set_mode(training::v1::PRECISION_MODE_FP32);
        spec.mutable_precision()->set_promote_after_steps(5);
      }),
      ElementsAre("precision.promote_after_steps: 5 conflicts with precision.mode FP32, which "
                  "never falls back; remove one of the two"));
}

TEST(JobSpecValidationTest, NamesBothPlacesOfConflictsAroundTheOptimizer) {
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_optimizer()->set_kind(training::v1::OPTIMIZER_KIND_SGD);
                spec.mutable_optimizer()->set_beta1(0.9);
                spec.mutable_optimizer()->set_nesterov(true);
              }),
              ElementsAre("optimizer.beta1: 0.9 conflicts with optimizer.kind SGD, which does not "
                          "use it; remove one of the two",
                          "optimizer.nesterov: true needs optimizer.momentum above 0; give one, or "
                          "remove nesterov"));
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) { spec.mutable_optimizer()->set_momentum(0.9); }),
      ElementsAre("optimizer.momentum: 0.9 conflicts with optimizer.kind ADAMW or ADAM, which "
                  "does not use it; remove one of the two"));
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_optimizer()->mutable_schedule()->set_warmup_steps(101);
              }),
              ElementsAre("optimizer.schedule.warmup_steps: 101 conflicts with training.max_steps "
                          "100; the warm-up has to end before the job"));
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) { spec.mutable_trace()->set_at_step(101); }),
              ElementsAre("trace.at_step: 101 conflicts with training.max_steps 100; the trace has "
                          "to begin before the job ends"));
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) { spec.mutable_trace()->set_steps(2); }),
              ElementsAre("trace.at_step: trace.steps 2 needs the first step that is traced; give "
                          "trace.at_step (1 or more)"));
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_trace()->set_at_step(5);
                spec.mutable_trace()->set_steps(101);
              }),
              ElementsAre("trace.steps is 101; accepted: 1 to 100"));
}

TEST(JobSpecValidationTest, WantsATableWithPointsFromLeftToRight) {
  const auto table = [](JobSpec& spec) -> training::v1::ScheduleSpec& {
    auto& schedule = *spec.mutable_optimizer()->mutable_schedule();
    schedule.set_kind(training::v1::SCHEDULE_KIND_TABLE);
    return schedule;
  };
  const auto add = [](training::v1::ScheduleSpec& schedule, int64_t step, double factor) {
    auto& point = *schedule.add_points();
    point.set_step(step);
    point.set_factor(factor);
  };
  EXPECT_THAT(FaultsAfter([&](JobSpec& spec) {
                add(table(spec), 0, 0);
                add(*spec.mutable_optimizer()->mutable_schedule(), 7, 3.5);
              }),
              IsEmpty());
  EXPECT_THAT(FaultsAfter([&](JobSpec& spec) { table(spec).set_warmup_steps(3); }),
              ElementsAre("optimizer.schedule.points: required with optimizer.schedule.kind TABLE; "
                          "give a step and a factor, or more",
                          "optimizer.schedule.warmup_steps: 3 conflicts with "
                          "optimizer.schedule.kind TABLE, whose points say it all; remove it"));
  EXPECT_THAT(
      FaultsAfter([&](JobSpec& spec) {
        auto& schedule = table(spec);
        add(schedule, 5, -1);
        add(schedule, 5, 1);
      }),
      ElementsAre("optimizer.schedule.points[0].factor is -1; accepted: 0 to 1000",
                  "optimizer.schedule.points[1].step is 5; accepted: more than 5, the step of the "
                  "point before"));
  EXPECT_THAT(
      FaultsAfter([&](JobSpec& spec) { add(*spec.mutable_optimizer()->mutable_schedule(), 1, 1); }),
      ElementsAre("optimizer.schedule.points: conflicts with an optimizer.schedule.kind "
                  "other than TABLE; remove the points, or give TABLE"));
}

TEST(JobSpecValidationTest, WantsNamesAndRangesOfParameterGroups) {
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        auto& group = *spec.mutable_optimizer()->add_parameter_groups();
        group.set_learning_rate(-1);
        group.set_weight_decay(-2);
        spec.mutable_optimizer()->add_parameter_groups()->add_parameters("");
      }),
      ElementsAre(
          "optimizer.parameter_groups[0].learning_rate is -1; accepted: a finite number > 0",
          "optimizer.parameter_groups[0].weight_decay is -2; accepted: a finite number > 0, or -1 "
          "for no decay",
          "optimizer.parameter_groups[0].parameters: required; give names of parameters as "
          "state_dict() has them, such as \"encoder.*\" or \"*.bias\"",
          "optimizer.parameter_groups[1].parameters: required; give names of parameters as "
          "state_dict() has them, such as \"encoder.*\" or \"*.bias\""));
}

TEST(JobSpecValidationTest, WantsEvaluationsWhereSomethingDependsOnThem) {
  const char* const kRest =
      " needs evaluation.every_steps, which is 0; give the steps between evaluations (>= 1), or "
      "remove ";
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_evaluation()->set_patience(3);
                spec.mutable_training()->set_target_loss(0.5);
                spec.mutable_checkpoint()->set_keep_best(2);
              }),
              ElementsAre(std::string("evaluation.patience: 3") + kRest + "evaluation.patience",
                          std::string("training.target_loss: 0.5") + kRest + "training.target_loss",
                          std::string("checkpoint.keep_best: 2") + kRest + "checkpoint.keep_best"));
}

TEST(JobSpecValidationTest, ChecksTheRateOfFalseAlarms) {
  for (const double rate : {-0.1, 1e-7, 0.51, HUGE_VAL}) {
    EXPECT_THAT(
        FaultsAfter([rate](JobSpec& spec) {
          spec.mutable_precision()->mutable_watchdog()->set_max_false_alarm_rate(rate);
        }),
        ElementsAre(testing::AllOf(testing::StartsWith("precision.watchdog.max_false_alarm_rate"),
                                   testing::HasSubstr("accepted: 1e-06 to 0.5"))));
  }
  JobSpec spec;
  EXPECT_EQ(WithDefaults(spec, LossScaleSettings()).precision().watchdog().max_false_alarm_rate(),
            0.005);
  spec.mutable_precision()->mutable_watchdog()->set_max_false_alarm_rate(0.1);
  EXPECT_EQ(WithDefaults(spec, LossScaleSettings()).precision().watchdog().max_false_alarm_rate(),
            0.1);
}

TEST(JobSpecValidationTest, ChecksRehearsals) {
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        spec.add_rehearsals()->set_micro_batch(1);
        spec.mutable_rehearsals(0)->set_amount(-1);
      }),
      ElementsAre("rehearsals[0].kind: required; give INF, NAN, SPIKE, SLOW, STALE, SATURATE, "
                  "UNDERFLOW, TRUNCATE or POISON",
                  "rehearsals[0].at_step: required; give the step (>= 1) that it acts in",
                  "rehearsals[0].amount is -1; accepted: a finite number > 0",
                  "rehearsals[0].micro_batch is 1; accepted: 0 to 0, for "
                  "training.gradient_accumulation_steps counts micro-batches"));
}

TEST(JobSpecValidationTest, NamesBothPlacesOfALossScaleConflict) {
  EXPECT_THAT(FaultsAfter([](JobSpec& spec) {
                spec.mutable_precision()->set_mode(training::v1::PRECISION_MODE_FP32);
                spec.mutable_precision()->set_loss_scale(1024);
              }),
              ElementsAre("precision.loss_scale: 1024 conflicts with precision.mode FP32, which "
                          "has no loss scale; remove one of the two"));
  EXPECT_THAT(
      FaultsAfter([](JobSpec& spec) {
        spec.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
        spec.mutable_precision()->set_growth_factor(2);
        spec.mutable_precision()->set_backoff_factor(0.5);
        spec.mutable_precision()->set_growth_interval(5);
      }),
      ElementsAre("precision.growth_factor: 2 conflicts with precision.mode MIXED_BF16, which has "
                  "no loss scale; remove one of the two",
                  "precision.backoff_factor: 0.5 conflicts with precision.mode MIXED_BF16, which "
                  "has no loss scale; remove one of the two",
                  "precision.growth_interval: 5 conflicts with precision.mode MIXED_BF16, which "
                  "has no loss scale; remove one of the two"));
}

TEST(JobSpecValidationTest, ChecksTheDatasetPath) {
  const auto faults = [](const std::string& path) {
    JobSpec spec = Smallest();
    spec.mutable_dataset()->mutable_trajectories()->set_path(path);
    return FaultsOf(spec);
  };
  EXPECT_THAT(faults("deep/er/a..b.npz"), IsEmpty());
  EXPECT_THAT(faults("/data/walks.npz"), IsEmpty());
  EXPECT_THAT(faults(""), ElementsAre("dataset.trajectories.path: required; give the path of an "
                                      ".npz, .jsonl or .safetensors file below the dataset root"));
  const std::string escape = "; accepted: a path without \"..\"; it may not leave the dataset root";
  for (const std::string path : {"../walks.npz", "a/../../walks.npz", "a/.."}) {
    EXPECT_THAT(faults(path),
                ElementsAre("dataset.trajectories.path is \"" + path + "\"" + escape));
  }
  EXPECT_THAT(faults("walks.csv"), ElementsAre("dataset.trajectories.path is \"walks.csv\"; "
                                               "accepted: a path that ends in .npz or .jsonl "
                                               "or .safetensors"));
  EXPECT_THAT(faults(std::string("a\0.npz", 6)),
              ElementsAre("dataset.trajectories.path is \"a\\x00.npz\"; accepted: a path without a "
                          "NUL byte"));
}

TEST(JobIdTest, AcceptsLowerCaseLettersDigitsAndHyphens) {
  for (const std::string& id : {std::string("a"), std::string("0-9"), std::string(63, 'x')}) {
    EXPECT_EQ(JobIdFault(id), "") << id;
  }
}

TEST(JobIdTest, RefusesEverythingElse) {
  for (const std::string& id :
       {std::string(), std::string("-a"), std::string("A"), std::string("a_b"), std::string("a/b"),
        std::string("ä"), std::string(64, 'x'), std::string("a\0", 2)}) {
    EXPECT_THAT(JobIdFault(id), testing::HasSubstr("job_id is \"")) << id;
  }
  EXPECT_EQ(JobIdFault("A"),
            "job_id is \"A\"; accepted: 1 to 63 lower-case letters, digits and '-', the first no "
            "'-'");
}

}  // namespace
}  // namespace genesis
