#include "trainer/run/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "tests/trainer/job_for_test.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::Finished;
using training::v1::StartJob;

class TrainingRunTest : public testing::Test {
 protected:
  Finished Run() { return RunTraining(job_, TestCpu(), control_, observer_, alone_); }
  // Runs the job with checkpoints at steps 20 and 40.
  void RunOnceWithCheckpoints() {
    job_.mutable_spec()->mutable_checkpoint()->set_every_steps(20);
    ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
    ASSERT_EQ(observer_.checkpoints.size(), 2u);
    first_ = observer_.checkpoints[0].checkpoint().path();
    second_ = observer_.checkpoints[1].checkpoint().path();
    full_ = std::move(observer_.steps);
    observer_ = RecordingObserver();
  }
  static void Damage(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
    file.write("damaged!", 8);
  }

  TempDir folder_;
  StartJob job_ = TinyJob(folder_);
  RunControl control_;
  RankGroup alone_;
  RecordingObserver observer_;
  std::string first_, second_;
  std::vector<StepRecord> full_;
};

TEST(ExplainExceptionTest, SaysWhatALimitOfTheProcessIsReachedBy) {
  const std::system_error limit(std::make_error_code(std::errc::resource_unavailable_try_again));
  const RunFailure failure = ExplainException(limit);
  EXPECT_EQ(failure.cause, training::v1::FAILURE_CAUSE_INTERNAL);
  EXPECT_THAT(failure.message, testing::StartsWith("a thread could not be created: Resource temp"));
  EXPECT_THAT(failure.message,
              testing::AnyOf(HasSubstr("raise ulimit -u"), HasSubstr("ulimit -v")));
  const std::system_error other(std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(ExplainException(other).message, "Permission denied");
}

TEST_F(TrainingRunTest, MakesAllStepsAndLeavesACheckpointAndAHeldOutError) {
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  EXPECT_EQ(observer_.started.total_steps(), 40);
  EXPECT_EQ(observer_.steps.size(), 40u);
  EXPECT_LT(observer_.steps.back().loss, 0.7 * observer_.steps.front().loss);
  EXPECT_EQ(finished.progress().step(), 40);
  EXPECT_EQ(finished.progress().samples(), 40 * 32);
  EXPECT_EQ(finished.held_out().transitions(), 64);
  EXPECT_LT(finished.held_out().model(), finished.held_out().mean());
  ASSERT_EQ(observer_.checkpoints.size(), 1u);
  const training::v1::Checkpoint& checkpoint = observer_.checkpoints[0].checkpoint();
  EXPECT_EQ(checkpoint.id(), "tiny-step-40");
  EXPECT_EQ(checkpoint.path(), folder_.path() + "/checkpoints/tiny-step-000000000040.pt");
  EXPECT_EQ(static_cast<uint64_t>(checkpoint.size_bytes()), fs::file_size(checkpoint.path()));
  EXPECT_THAT(observer_.log, HasSubstr("training complete"));
}

TEST_F(TrainingRunTest, ReportsTheFirstStepAloneAndEveryStepOnce) {
  Run();
  ASSERT_FALSE(observer_.reports.empty());
  EXPECT_EQ(observer_.reports.front().new_steps(), 1);
  int64_t steps = 0;
  for (const training::v1::Steps& report : observer_.reports) steps += report.new_steps();
  EXPECT_EQ(steps, 40);
}

TEST_F(TrainingRunTest, TracesTheStepsThatTheJobNames) {
  job_.mutable_spec()->mutable_trace()->set_at_step(5);
  job_.mutable_spec()->mutable_trace()->set_steps(2);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  const std::string path = folder_.path() + "/checkpoints/tiny-trace-step-5.json";
  EXPECT_THAT(observer_.log, HasSubstr("trace: " + path + ", steps 5 to 6, "));
  std::ifstream file(path);
  const std::string trace{std::istreambuf_iterator<char>(file), {}};
  for (const char* part : {"draw", "forward", "backward", "update"}) {
    const std::string name = absl::StrCat("\"name\": \"", part, "\"");
    int found = 0;
    for (size_t at = trace.find(name); at != std::string::npos; at = trace.find(name, at + 1)) {
      ++found;
    }
    EXPECT_EQ(found, 2) << part;
  }
  EXPECT_THAT(trace, HasSubstr("\"name\": \"aten::addmm\""));
}

TEST_F(TrainingRunTest, TracesNothingWhereTheJobEndsBefore) {
  job_.mutable_spec()->mutable_trace()->set_at_step(41);
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_THAT(observer_.log, testing::Not(HasSubstr("trace")));
}

TEST_F(TrainingRunTest, CountsEpochsInWholeBatches) {
  // The 192 training transitions are 6 batches.
  job_.mutable_spec()->mutable_training()->clear_max_steps();
  job_.mutable_spec()->mutable_training()->set_epochs(3);
  job_.mutable_spec()->mutable_training()->set_gradient_accumulation_steps(2);
  EXPECT_EQ(Run().progress().step(), 9);
}

TEST_F(TrainingRunTest, StopsAtTheNextStepWithACheckpoint) {
  observer_.on_step = [this](int64_t step) {
    if (step == 10) control_.RequestStop(/*checkpoint=*/true);
  };
  const Finished finished = Run();
  EXPECT_EQ(finished.outcome(), Finished::OUTCOME_STOPPED);
  EXPECT_LE(finished.progress().step(), 12);
  ASSERT_EQ(observer_.checkpoints.size(), 1u);
  EXPECT_EQ(observer_.checkpoints[0].checkpoint().step(), finished.progress().step());
}

TEST_F(TrainingRunTest, StopsWithoutACheckpointWhenNoneIsWanted) {
  control_.RequestStop(/*checkpoint=*/false);
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_STOPPED);
  EXPECT_TRUE(observer_.checkpoints.empty());
}

TEST_F(TrainingRunTest, WritesACheckpointOnRequestAndGoesOn) {
  observer_.on_step = [this](int64_t step) {
    if (step == 10) control_.RequestCheckpoint();
  };
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(observer_.checkpoints.size(), 2u);
  EXPECT_EQ(observer_.steps.size(), 40u);
}

TEST_F(TrainingRunTest, TheLastCheckpointHasTheLastHeldOutLoss) {
  training::v1::JobSpec& spec = *job_.mutable_spec();
  spec.mutable_training()->set_max_steps(40);
  spec.mutable_checkpoint()->set_every_steps(20);
  spec.mutable_evaluation()->set_every_steps(13);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  ASSERT_EQ(observer_.evaluations.back().step(), 40);
  const training::v1::Checkpoint& last = observer_.checkpoints.back().checkpoint();
  EXPECT_EQ(last.step(), 40);
  EXPECT_EQ(last.held_out_loss(), observer_.evaluations.back().loss());
}

TEST_F(TrainingRunTest, KeepsTheNewestCheckpoints) {
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(10);
  job_.mutable_spec()->mutable_checkpoint()->set_keep_last(2);
  Run();
  ASSERT_EQ(observer_.checkpoints.size(), 4u);
  EXPECT_THAT(observer_.checkpoints[3].removed_ids(), ElementsAre("tiny-step-20"));
}

TEST_F(TrainingRunTest, ContinuesBitForBitFromACheckpoint) {
  RunOnceWithCheckpoints();
  job_.add_resume_from(first_);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(observer_.started.resumed_step(), 20);
  ASSERT_EQ(observer_.steps.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(observer_.steps[i].step, full_[20 + i].step);
    EXPECT_EQ(observer_.steps[i].loss, full_[20 + i].loss);
    EXPECT_EQ(observer_.steps[i].samples, full_[20 + i].samples);
  }
}

TEST_F(TrainingRunTest, TakesThePreviousCheckpointWhenTheNewestIsDamaged) {
  RunOnceWithCheckpoints();
  Damage(second_);
  job_.add_resume_from(second_);
  job_.add_resume_from(first_);
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(observer_.started.resumed_step(), 20);
  EXPECT_THAT(observer_.log, HasSubstr(second_ + " cannot be used: "));
  EXPECT_THAT(observer_.log, HasSubstr("the file is damaged"));
}

// The worker was killed after it removed the first checkpoint and before it reported the second, so
// the daemon knows only the first.
TEST_F(TrainingRunTest, TakesACheckpointThatWasNeverReportedWhereTheReportedOneIsGone) {
  RunOnceWithCheckpoints();
  std::filesystem::remove(first_);
  job_.add_resume_from(first_);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  EXPECT_EQ(observer_.started.resumed_step(), 40);
  ASSERT_EQ(observer_.checkpoints.size(), 1U) << "the one that nobody heard of is reported";
  EXPECT_EQ(observer_.checkpoints[0].checkpoint().path(), second_);
  EXPECT_THAT(observer_.checkpoints[0].removed_ids(), ElementsAre("tiny-step-20"));
}

TEST_F(TrainingRunTest, FailsWhenNoCheckpointCanBeUsed) {
  RunOnceWithCheckpoints();
  Damage(second_);
  job_.add_resume_from(second_);
  const Finished finished = Run();
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_CHECKPOINT);
  EXPECT_THAT(finished.failure().message(), HasSubstr("none of 1 checkpoints can be used"));
}

TEST_F(TrainingRunTest, RefusesACheckpointOfAnotherModel) {
  RunOnceWithCheckpoints();
  job_.mutable_spec()->mutable_model()->mutable_world_model()->set_hidden_size(17);
  job_.add_resume_from(second_);
  EXPECT_THAT(Run().failure().message(),
              HasSubstr("encoder.0.weight has shape [16, 2]; the job's model needs [17, 2]"));
}

TEST_F(TrainingRunTest, FinishesAtOnceWhenAllStepsAreMade) {
  RunOnceWithCheckpoints();
  job_.add_resume_from(second_);
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_TRUE(observer_.steps.empty());
  EXPECT_TRUE(observer_.checkpoints.empty());
}

TEST_F(TrainingRunTest, EndsOnANonFiniteLossAndKeepsItOutOfCheckpoints) {
  job_.mutable_spec()->mutable_optimizer()->set_learning_rate(1e30);
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(1);
  const Finished finished = Run();
  EXPECT_EQ(finished.outcome(), Finished::OUTCOME_FAILED);
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_NON_FINITE);
  EXPECT_THAT(finished.failure().message(), HasSubstr("at step"));
  EXPECT_THAT(finished.failure().message(), HasSubstr("(it is 1e+30)"));
  int64_t steps = 0;
  int64_t samples = 0;
  for (const training::v1::Steps& report : observer_.reports) {
    steps += report.new_steps();
    samples += report.new_samples();
  }
  EXPECT_GT(steps, 0);
  EXPECT_EQ(steps, finished.progress().step());
  EXPECT_EQ(samples, finished.progress().samples());
}

TEST_F(TrainingRunTest, NamesDataThatCannotBeTrainedOn) {
  job_.mutable_spec()->mutable_dataset()->mutable_trajectories()->set_path("/nowhere.npz");
  EXPECT_EQ(Run().failure().cause(), training::v1::FAILURE_CAUSE_DATA);
}

TEST_F(TrainingRunTest, RefusesABatchLargerThanTheData) {
  job_.mutable_spec()->mutable_training()->set_batch_size(193);
  const Finished finished = Run();
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_CONFIG);
  EXPECT_EQ(finished.failure().message(),
            "training.batch_size is 193; accepted for this dataset: 1 to 192, the examples that "
            "it trains on");
}

TEST_F(TrainingRunTest, SaysThatTheCheckpointFolderCannotBeMade) {
  job_.set_checkpoint_dir("/proc/nowhere");
  EXPECT_EQ(Run().failure().cause(), training::v1::FAILURE_CAUSE_CHECKPOINT);
}

TEST_F(TrainingRunTest, TrainsInBf16) {
  job_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  EXPECT_LT(observer_.steps.back().loss, 0.7 * observer_.steps.front().loss);
  EXPECT_EQ(finished.progress().reduced_precision_steps(), 40);
  EXPECT_EQ(finished.progress().loss_scale(), 1);
}

// On a CPU, FP16 is selected only for emulation. Here it tests the arithmetic of the loss scale.
TEST_F(TrainingRunTest, SkipsOverflowedStepsInFp16UntilTheScaleFits) {
  job_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  job_.mutable_spec()->mutable_precision()->set_loss_scale(std::ldexp(1.0, 30));
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << finished.failure().message();
  const int64_t skipped = finished.progress().skipped_steps();
  EXPECT_GT(skipped, 5);
  EXPECT_LT(skipped, 25);
  double scale = std::ldexp(1.0, 30);
  for (const StepRecord& record : observer_.steps) {
    EXPECT_EQ(record.loss_scale, scale) << record.step;
    if (record.skipped) scale /= 2;
  }
  EXPECT_TRUE(observer_.steps.front().skipped);
  EXPECT_EQ(finished.progress().loss_scale(), scale);
  EXPECT_LT(observer_.steps.back().loss, 0.9 * observer_.steps.front().loss);
}

TEST_F(TrainingRunTest, ContinuesAnFp16CheckpointInFp32AndBack) {
  job_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  RunOnceWithCheckpoints();
  job_.add_resume_from(first_);
  job_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_FP32);
  const Finished in_fp32 = Run();
  EXPECT_EQ(in_fp32.outcome(), Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(in_fp32.progress().reduced_precision_steps(), 20);
  job_.clear_resume_from();
  job_.add_resume_from(observer_.checkpoints.back().checkpoint().path());
  job_.mutable_spec()->mutable_training()->set_max_steps(60);
  job_.mutable_precision()->set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  EXPECT_EQ(Run().progress().reduced_precision_steps(), 40);
}

}  // namespace
}  // namespace genesis
