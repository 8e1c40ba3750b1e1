// Tests of whole runs under the watchdog: it does not affect healthy runs, and finds faults in
// weights, gradients and batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "config/job/job_file.h"
#include "tests/trainer/job_for_test.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/run/training_run.h"

namespace genesis {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using training::v1::Finished;
using training::v1::PrecisionMode;

constexpr auto kFp32 = training::v1::PRECISION_MODE_FP32;
constexpr auto kBf16 = training::v1::PRECISION_MODE_BF16;
constexpr auto kMixedFp16 = training::v1::PRECISION_MODE_MIXED_FP16;
constexpr auto kMixedBf16 = training::v1::PRECISION_MODE_MIXED_BF16;

// Keeps every processor busy during its lifetime.
class BusyProcessors {
 public:
  BusyProcessors() {
    for (unsigned i = 0; i < 2 * std::max(std::thread::hardware_concurrency(), 1U); ++i) {
      threads_.emplace_back([this] {
        while (!stop_) {
        }
      });
    }
  }
  ~BusyProcessors() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

class WatchedRunTest : public testing::Test {
 protected:
  WatchedRunTest() {
    spec().mutable_training()->set_max_steps(200);
    job_.add_allowed_modes(kBf16);
  }
  training::v1::JobSpec& spec() { return *job_.mutable_spec(); }
  training::v1::WatchdogSpec& watchdog() { return *spec().mutable_precision()->mutable_watchdog(); }
  void Rehearse(training::v1::RehearsalKind kind, int64_t at_step, double amount) {
    training::v1::RehearsalSpec& rehearsal = *spec().add_rehearsals();
    rehearsal.set_kind(kind);
    rehearsal.set_at_step(at_step);
    rehearsal.set_steps(1'000'000);
    rehearsal.set_amount(amount);
  }
  // Sets a baseline so fast that every step is slow in comparison.
  void ClaimFastFp32() {
    job_.mutable_baseline()->add_steps(1);
    job_.mutable_baseline()->add_losses(1);
    job_.mutable_baseline()->set_step_seconds(1e-9);
  }
  Finished RunIn(PrecisionMode mode) {
    observer_ = RecordingObserver();
    observer_.on_step = on_step_;
    job_.mutable_precision()->set_mode(mode);
    return RunTraining(job_, TestCpu(), control_, observer_, alone_);
  }
  std::vector<double> Losses() const {
    std::vector<double> losses;
    for (const StepRecord& step : observer_.steps) losses.push_back(step.loss);
    return losses;
  }
  std::vector<int64_t> EvaluatedSteps() const {
    std::vector<int64_t> steps;
    for (const auto& each : observer_.evaluations) steps.push_back(each.step());
    return steps;
  }
  std::vector<std::string> Rules() const {
    std::vector<std::string> rules;
    for (const auto& incident : observer_.incidents) rules.push_back(incident.rule());
    return rules;
  }

  TempDir folder_;
  training::v1::StartJob job_ = TinyJob(folder_);
  RunControl control_;
  RankGroup alone_;
  std::function<void(int64_t)> on_step_;
  RecordingObserver observer_;
};

TEST_F(WatchedRunTest, LookingCloserChangesNoNumber) {
  ClaimFastFp32();
  for (const PrecisionMode mode : {kMixedBf16, kBf16, kMixedFp16}) {
    watchdog().mutable_divergence()->set_action(training::v1::WATCHDOG_ACTION_OFF);
    watchdog().mutable_slowdown()->set_action(training::v1::WATCHDOG_ACTION_OFF);
    ASSERT_EQ(RunIn(mode).outcome(), Finished::OUTCOME_COMPLETED);
    const std::vector<double> alone = Losses();
    ASSERT_THAT(Rules(), IsEmpty());
    watchdog().mutable_divergence()->set_action(training::v1::WATCHDOG_ACTION_ENFORCE);
    watchdog().mutable_divergence()->set_window_steps(4);  // A pair every eight steps.
    watchdog().mutable_slowdown()->set_action(training::v1::WATCHDOG_ACTION_ADVISE);
    watchdog().mutable_slowdown()->set_threshold(1000);  // High enough to ignore times.
    watchdog().mutable_slowdown()->set_window_steps(20);
    ASSERT_EQ(RunIn(mode).outcome(), Finished::OUTCOME_COMPLETED);
    EXPECT_EQ(Losses(), alone) << mode;
    EXPECT_THAT(Rules(), Contains("slowdown"));
    EXPECT_THAT(observer_.log, HasSubstr("measured in turn"));
    EXPECT_THAT(observer_.changes, IsEmpty());
  }
}

TEST_F(WatchedRunTest, OtherProgramsAreNoSlowdown) {
  ClaimFastFp32();
  watchdog().mutable_slowdown()->set_threshold(0.02);  // The slowdown that emulation may have.
  watchdog().mutable_slowdown()->set_window_steps(20);
  const BusyProcessors busy;
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_THAT(Rules(), Not(Contains("slowdown")));
}

TEST_F(WatchedRunTest, PairsFindALossThatIsMeasuredHigherWithoutAnyBaseline) {
  Rehearse(training::v1::REHEARSAL_KIND_SPIKE, 70, 1.25);
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1U) << observer_.log;
  EXPECT_EQ(observer_.changes[0].trigger(), "divergence");
  EXPECT_GE(observer_.changes[0].step(), 70);
  EXPECT_THAT(observer_.changes[0].reason(), HasSubstr("with the same weights in FP32"));
  EXPECT_EQ(observer_.steps.back().mode, kFp32);
}

TEST_F(WatchedRunTest, ARewindTakesBackTheEvaluationsSinceThen) {
  spec().mutable_evaluation()->set_every_steps(150);
  spec().mutable_checkpoint()->set_every_steps(140);
  Rehearse(training::v1::REHEARSAL_KIND_SPIKE, 141, 10);
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1U) << observer_.log;
  ASSERT_EQ(observer_.changes[0].resumed_step(), 140);
  ASSERT_GT(observer_.changes[0].step(), 150);
  std::vector<training::v1::Evaluation> at_150;
  for (const auto& each : observer_.evaluations) {
    if (each.step() == 150) at_150.push_back(each);
  }
  ASSERT_EQ(at_150.size(), 2U) << observer_.log;
  EXPECT_TRUE(at_150[1].best()) << "that of the discarded weights is not the best any more";
  // The same weights, resumed in FP32 from the checkpoint before.
  job_.add_resume_from(observer_.checkpoints[0].checkpoint().path());
  spec().clear_rehearsals();
  const training::v1::Evaluation rewound = at_150[1];
  ASSERT_EQ(RunIn(kFp32).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_FALSE(observer_.evaluations.empty());
  EXPECT_EQ(observer_.evaluations[0].step(), 150);
  EXPECT_EQ(observer_.evaluations[0].loss(), rewound.loss());
}

TEST_F(WatchedRunTest, ARewindToAnEvaluatedStepCountsNoSecondEvaluation) {
  spec().mutable_evaluation()->set_every_steps(70);
  spec().mutable_evaluation()->set_patience(1);
  spec().mutable_checkpoint()->set_every_steps(140);
  Rehearse(training::v1::REHEARSAL_KIND_SPIKE, 141, 10);
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1U) << observer_.log;
  ASSERT_EQ(observer_.changes[0].resumed_step(), 140);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(70, 140, 200));
  // The checkpoint that is written again keeps its held-out loss, and so keep_best its place.
  for (const auto& each : observer_.checkpoints) {
    if (each.checkpoint().step() != 140) continue;
    EXPECT_EQ(each.checkpoint().held_out_loss(), observer_.evaluations[1].loss());
  }
}

TEST_F(WatchedRunTest, ADivergenceThatIsFoundOnAnEvaluatedStepEvaluatesNoStepTwice) {
  spec().mutable_evaluation()->set_every_steps(1);
  spec().mutable_checkpoint()->set_every_steps(140);
  Rehearse(training::v1::REHEARSAL_KIND_SPIKE, 141, 10);
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1U) << observer_.log;
  ASSERT_EQ(observer_.changes[0].resumed_step(), 140);
  const std::vector<int64_t> steps = EvaluatedSteps();
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 140), 1);
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 141), 2) << "once of weights that are gone";
}

TEST_F(WatchedRunTest, ARewindIsDurableBeforeItIsReported) {
  // The good state is that of a request. The checkpoint of step 145 is written when the loss is
  // suspicious already.
  *job_.mutable_baseline() = RunIn(kFp32).curve();
  spec().mutable_checkpoint()->set_every_steps(145);
  Rehearse(training::v1::REHEARSAL_KIND_SPIKE, 141, 10);
  std::vector<std::string> files;
  on_step_ = [&](int64_t step) {
    if (step == 44) control_.RequestCheckpoint();
    if (observer_.changes.empty() || !files.empty()) return;
    for (const auto& each : std::filesystem::directory_iterator(job_.checkpoint_dir())) {
      if (each.path().extension() == ".pt") files.push_back(each.path().stem());
    }
  };
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1U) << observer_.log;
  ASSERT_GT(observer_.changes[0].step(), 145) << observer_.log;
  const int64_t resumed = observer_.changes[0].resumed_step();
  ASSERT_LT(resumed, 50) << observer_.log;
  EXPECT_THAT(files, ElementsAre(EndsWith(absl::StrFormat("-step-%012d", resumed))));
  // A restart cannot undo a change that was reported.
  ASSERT_GT(observer_.checkpoints_before_change, 0U);
  const auto& again = observer_.checkpoints[observer_.checkpoints_before_change - 1].checkpoint();
  EXPECT_EQ(again.step(), resumed);
  EXPECT_EQ(again.mode(), kFp32);
}

TEST_F(WatchedRunTest, PairsFindBatchesThatReducedPrecisionAloneSeesSpoilt) {
  Rehearse(training::v1::REHEARSAL_KIND_POISON, 1, 3);
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_THAT(Rules(), Contains("divergence"));
}

TEST_F(WatchedRunTest, FaultsOfWeightsAndGradientsActInReducedPrecisionOnly) {
  ASSERT_EQ(RunIn(kFp32).outcome(), Finished::OUTCOME_COMPLETED);
  const std::vector<double> fp32 = Losses();
  const std::pair<training::v1::RehearsalKind, double> kinds[] = {
      {training::v1::REHEARSAL_KIND_STALE, 1},
      {training::v1::REHEARSAL_KIND_SATURATE, 1e-6},
      {training::v1::REHEARSAL_KIND_UNDERFLOW, 0.1},
      {training::v1::REHEARSAL_KIND_TRUNCATE, 3},
      {training::v1::REHEARSAL_KIND_POISON, 2}};
  watchdog().mutable_divergence()->set_action(training::v1::WATCHDOG_ACTION_OFF);
  for (const auto& [kind, amount] : kinds) {
    spec().clear_rehearsals();
    ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
    const std::vector<double> healthy = Losses();
    Rehearse(kind, 5, amount);
    ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
    EXPECT_EQ(Losses()[2], healthy[2]);
    EXPECT_NE(Losses().back(), healthy.back()) << training::v1::RehearsalKind_Name(kind);
    ASSERT_EQ(RunIn(kFp32).outcome(), Finished::OUTCOME_COMPLETED);
    EXPECT_EQ(Losses(), fp32);
  }
}

TEST_F(WatchedRunTest, WeightsThatStayWhereTheyAreAreFoundByTheCurve) {
  spec().mutable_training()->set_max_steps(800);
  const Finished fp32 = RunIn(kFp32);
  *job_.mutable_baseline() = fp32.curve();
  EXPECT_GT(fp32.curve().step_processor_seconds(), 0);
  Rehearse(training::v1::REHEARSAL_KIND_STALE, 40, 1);
  ASSERT_EQ(RunIn(kMixedBf16).outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.changes.size(), 1U) << observer_.log;
  EXPECT_EQ(observer_.changes[0].trigger(), "divergence");
  EXPECT_LE(observer_.changes[0].step(), 600);
}

TEST_F(WatchedRunTest, AFinishedFp32RunTellsItsHeldOutLosses) {
  spec().mutable_evaluation()->set_every_steps(50);
  const Finished fp32 = RunIn(kFp32);
  EXPECT_THAT(fp32.curve().held_out_steps(), testing::ElementsAre(50, 100, 150, 200));
  EXPECT_EQ(fp32.curve().held_out_losses_size(), 4);
  EXPECT_EQ(fp32.curve().log_losses_size(), fp32.curve().losses_size());
}

// The example runs in FP32 and then in reduced precision. Its loss may be a fifth above FP32's
// for 50 steps in a row, and the final result must be equally good. Set
// GENESIS_WATCHED_STEPS=12000 for a long run.
TEST_F(WatchedRunTest, TheExampleIsNotRolledBack) {
  const std::string examples = GENESIS_EXAMPLES;
  auto example = ReadJobFile(examples + "/pendulum.yaml");
  ASSERT_TRUE(example.ok()) << example.status();
  spec() = WithDefaults(*example, LossScaleSettings());
  spec().mutable_dataset()->mutable_trajectories()->set_path(examples +
                                                             "/trajectories/pendulum.npz");
  spec().mutable_checkpoint()->set_every_steps(0);
  if (const char* const steps = std::getenv("GENESIS_WATCHED_STEPS")) {
    spec().mutable_training()->set_max_steps(std::atoll(steps));
  }
  const Finished fp32 = RunIn(kFp32);
  ASSERT_EQ(fp32.outcome(), Finished::OUTCOME_COMPLETED) << fp32.failure().message();
  *job_.mutable_baseline() = fp32.curve();
  const Finished mixed = RunIn(kMixedBf16);
  ASSERT_EQ(mixed.outcome(), Finished::OUTCOME_COMPLETED) << mixed.failure().message();
  EXPECT_THAT(observer_.changes, IsEmpty()) << observer_.log;
  EXPECT_THAT(Rules(), Not(Contains("divergence"))) << observer_.log;
  EXPECT_LE(mixed.held_out().model(), 2 * fp32.held_out().model());
}

}  // namespace
}  // namespace genesis
