// Tests of runs on a replay buffer that grows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "replay/capacity.h"
#include "replay/replay_writer.h"
#include "tests/replay/transitions.h"
#include "tests/trainer/job_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/run/training_run.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using training::v1::Finished;

// Notes the reasons of waits too.
class Observer : public RecordingObserver {
 public:
  void OnWaiting(const std::string& reason) override {
    if (on_waiting) on_waiting();
    waits.push_back(reason);
  }
  std::vector<std::string> waits;
  std::function<void()> on_waiting;
};

class FollowingRunTest : public testing::Test {
 protected:
  FollowingRunTest() {
    auto writer = ReplayWriter::Open(
        Buffer(), {.layout = kLayout, .capacity = 2000, .segment_transitions = 250});
    writer_ = *std::move(writer);
    training::v1::JobSpec& spec = *job_.mutable_spec();
    spec.mutable_training()->set_max_steps(60);
    replay().set_path(Buffer());
    replay().set_follow(true);
    replay().set_holdout_fraction(0.25);
    spec = WithDefaults(spec, LossScaleSettings());
  }

  std::string Buffer() const { return folder_.path() + "/buffer"; }
  training::v1::ReplaySpec& replay() {
    return *job_.mutable_spec()->mutable_dataset()->mutable_replay();
  }

  // Appends episodes of 10 transitions that go around a circle.
  void Append(int episodes) {
    for (int i = 0; i < episodes; ++i, ++episodes_) {
      std::vector<ReplayTransition> transitions;
      for (int step = 0; step < 10; ++step) {
        const double angle = 0.7 * episodes_ + 0.1 * step;
        const auto at = [&](double more) {
          return std::vector<float>{static_cast<float>(std::cos(angle + more)),
                                    static_cast<float>(std::sin(angle + more))};
        };
        transitions.push_back({.observation = at(0),
                               .action = {static_cast<float>(step % 3)},
                               .next_observation = at(0.1),
                               .reward = static_cast<float>(std::cos(angle)),
                               .terminal = step == 9,
                               .priority = {}});
      }
      ASSERT_TRUE(AppendTo(*writer_, absl::StrCat(episodes_), transitions).ok());
    }
  }

  void Choose(training::v1::SamplingKind kind) {
    job_.mutable_spec()->mutable_dataset()->mutable_sampling()->set_kind(kind);
    *job_.mutable_spec() = WithDefaults(job_.spec(), LossScaleSettings());
  }

  // Compares a run that resumes from a checkpoint with the whole one.
  void ExpectToResumeToTheBit();

  Finished Run() { return RunTraining(job_, TestCpu(), control_, observer_, ranks_); }

  const TempDir folder_;
  training::v1::StartJob job_ = TinyJob(folder_);
  std::unique_ptr<ReplayWriter> writer_;
  int episodes_ = 0;
  RunControl control_;
  Observer observer_;
  RankGroup ranks_;
};

TEST_F(FollowingRunTest, TrainsOnWhatArrivesAndCountsIt) {
  Append(20);
  observer_.on_step = [this](int64_t step) {
    if (step % 10 != 0) return;
    Append(40);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  };
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  EXPECT_EQ(finished.progress().first_transition(), 0);
  EXPECT_GE(finished.progress().next_transition(), 200 + 5 * 400);
  EXPECT_DOUBLE_EQ(finished.progress().samples_per_insert(),
                   static_cast<double>(finished.progress().samples()) /
                       static_cast<double>(finished.progress().next_transition()));
  EXPECT_GT(writer_->first(), 0u) << "nothing was evicted while it trained";
}

TEST_F(FollowingRunTest, WaitsForMinSizeAndSaysSo) {
  replay().set_min_size(300);
  Append(20);
  observer_.on_waiting = [this] {
    if (episodes_ < 40) Append(20);
  };
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  ASSERT_GE(observer_.waits.size(), 2u);
  EXPECT_EQ(observer_.waits.front(),
            "waits for data: 200 transitions were appended; dataset.replay.min_size is 300");
  EXPECT_EQ(observer_.waits.back(), "");
  EXPECT_GE(finished.progress().next_transition(), 300);
}

TEST_F(FollowingRunTest, TrainsAsLongAsNoEpisodeIsHeldOut) {
  replay().set_holdout_fraction(1e-9);
  job_.mutable_spec()->mutable_evaluation()->set_every_steps(20);
  Append(4);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  EXPECT_FALSE(finished.has_held_out());
  EXPECT_THAT(observer_.log, HasSubstr("no episode of the replay buffer is held out"));
}

TEST_F(FollowingRunTest, AStopEndsTheWaitBeforeTheFirstStep) {
  replay().set_min_size(300);
  Append(20);
  observer_.on_waiting = [this] { control_.RequestStop(/*checkpoint=*/true); };
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_STOPPED);
  EXPECT_THAT(observer_.log, HasSubstr("stopped before the first step"));
}

TEST_F(FollowingRunTest, MinSizeAboveTheCapacityIsRefused) {
  Append(20);
  ASSERT_TRUE(WriteReplayCapacity(Buffer(), 2000).ok());
  replay().set_min_size(2001);
  const Finished finished = Run();
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_CONFIG);
  EXPECT_THAT(finished.failure().message(),
              HasSubstr("dataset.replay.min_size is 2001; accepted for this buffer: at most 2000"));
}

TEST_F(FollowingRunTest, ACapacityThatWasLoweredEndsNoJobThatHasBegun) {
  Append(40);
  replay().set_min_size(300);
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(20);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  ASSERT_TRUE(WriteReplayCapacity(Buffer(), 250).ok());
  job_.add_resume_from(observer_.checkpoints[0].checkpoint().path());
  EXPECT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
}

TEST_F(FollowingRunTest, DrawsNoMoreThanSamplesPerInsert) {
  replay().set_samples_per_insert(2);
  replay().set_samples_per_insert_tolerance(100);
  Append(20);
  // 2 x 200 + 100 examples are 15 batches of 32.
  observer_.on_waiting = [this] {
    EXPECT_LE(observer_.steps.size(), static_cast<size_t>((20 * episodes_ + 100) / 32));
    if (episodes_ < 100) Append(40);
  };
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  EXPECT_THAT(observer_.waits.front(),
              HasSubstr("it has drawn 480 examples and seen 200 transitions; "
                        "dataset.replay.samples_per_insert is 2"));
  EXPECT_GE(finished.progress().next_transition(), 910);
}

TEST_F(FollowingRunTest, EndsWhenNothingArrives) {
  replay().set_idle_seconds(0.3);
  job_.mutable_spec()->mutable_training()->set_max_steps(1'000'000'000'000);
  Append(20);
  const Finished finished = Run();
  ASSERT_EQ(finished.outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  EXPECT_THAT(finished.early_end(),
              HasSubstr("no new transitions for 0.3 s; dataset.replay.idle_seconds is 0.3"));
}

void FollowingRunTest::ExpectToResumeToTheBit() {
  replay().set_samples_per_insert(100);
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(20);
  job_.mutable_spec()->mutable_checkpoint()->set_keep_last(10);
  Append(20);
  observer_.on_step = [this](int64_t step) {
    // Evicts, too.
    if (step == 5) Append(250);
    if (step == 5) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  };
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  ASSERT_GT(writer_->first(), 0u);
  const std::vector<StepRecord> whole = observer_.steps;
  ASSERT_EQ(whole.size(), 60u);

  job_.add_resume_from(observer_.checkpoints[1].checkpoint().path());
  Observer again;
  const Finished resumed = RunTraining(job_, TestCpu(), control_, again, ranks_);
  ASSERT_EQ(resumed.outcome(), Finished::OUTCOME_COMPLETED) << again.log;
  ASSERT_EQ(again.steps.size(), 20u);
  for (size_t i = 0; i < again.steps.size(); ++i) {
    EXPECT_EQ(again.steps[i].step, whole[40 + i].step);
    EXPECT_EQ(again.steps[i].loss, whole[40 + i].loss) << i;
    EXPECT_EQ(again.steps[i].grad_norm, whole[40 + i].grad_norm) << i;
  }
  EXPECT_EQ(resumed.progress().first_transition(), 0) << "it has forgotten what it had seen";
}

TEST_F(FollowingRunTest, ResumesToTheBitWhereNothingNewArrived) { ExpectToResumeToTheBit(); }

TEST_F(FollowingRunTest, ResumesToTheBitWithPriorities) {
  Choose(training::v1::SAMPLING_KIND_PRIORITIZED);
  ExpectToResumeToTheBit();
}

TEST_F(FollowingRunTest, AResumedRunKeepsThePrioritiesAndAddsThoseOfTheNewOnes) {
  Choose(training::v1::SAMPLING_KIND_PRIORITIZED);
  job_.mutable_spec()->mutable_checkpoint()->set_every_steps(20);
  job_.mutable_spec()->mutable_checkpoint()->set_keep_last(10);
  Append(100);
  ASSERT_EQ(Run().outcome(), Finished::OUTCOME_COMPLETED) << observer_.log;
  const std::string path = observer_.checkpoints[0].checkpoint().path();
  const at::Tensor before = ReadCheckpoint(path)->priorities;
  EXPECT_LT(before.min().item<float>(), before.max().item<float>()) << "none has changed";
  Append(150);  // Evicts about half of the earlier ones.
  ASSERT_GT(writer_->first(), 0u);
  job_.add_resume_from(path);
  job_.mutable_spec()->mutable_training()->set_max_steps(21);
  Observer again;
  ASSERT_EQ(RunTraining(job_, TestCpu(), control_, again, ranks_).outcome(),
            Finished::OUTCOME_COMPLETED)
      << again.log;
  const at::Tensor after = ReadCheckpoint(again.checkpoints.back().checkpoint().path())->priorities;
  // Except for the batch of the one step, these are the kept ones in their order, and then copies
  // of the highest of them.
  int64_t kept = 0;
  for (int64_t first = 0; first < before.numel(); ++first) {
    const int64_t count = before.numel() - first;
    if (count > after.numel()) continue;
    const at::Tensor same = before.slice(0, first).eq(after.slice(0, 0, count)).sum();
    if (same.item<int64_t>() < count - 64) continue;
    kept = count;
    break;
  }
  EXPECT_GT(kept, 100);
  const at::Tensor added = after.slice(0, kept);
  EXPECT_GE(added.eq(before.slice(0, before.numel() - kept).max()).sum().item<int64_t>(),
            added.numel() - 64);
}

TEST_F(FollowingRunTest, AFolderWithoutABufferIsRefused) {
  replay().set_path(folder_.path());
  const Finished finished = Run();
  EXPECT_EQ(finished.failure().cause(), training::v1::FAILURE_CAUSE_DATA);
  EXPECT_THAT(finished.failure().message(), HasSubstr("holds no replay buffer"));
}

}  // namespace
}  // namespace genesis
