// Tests of the job rules, with a clock and workers controlled by the test: nothing waits.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/enum_names.h"
#include "tests/server/job_rules_fixture.h"

namespace genesis {
namespace {

using testing::HasSubstr;

// Triggers each legal move as in production: by a user's request, a worker's
// report or the passage of time.
TEST_F(JobRulesTest, EveryMoveOfTheTableIsMade) {
  workers_.free = 0;
  ASSERT_TRUE(Train("queued-paused").ok());
  ASSERT_TRUE(Pause("queued-paused").ok());
  ASSERT_TRUE(Cancel("queued-paused").ok());
  ASSERT_TRUE(Train("queued-cancelled").ok());
  ASSERT_TRUE(Cancel("queued-cancelled").ok());
  ASSERT_TRUE(Train("queued-failed", 0, 60).ok());
  ASSERT_TRUE(Train("paused-failed", 0, 60).ok());
  ASSERT_TRUE(Pause("paused-failed").ok());
  clock_.Advance(61);
  Tick();
  EXPECT_EQ(Get("queued-failed").failure().cause(), FAILURE_CAUSE_DEADLINE);
  EXPECT_EQ(Get("paused-failed").failure().cause(), FAILURE_CAUSE_DEADLINE);

  workers_.free = 1;
  ASSERT_TRUE(Train("starting-cancelling").ok());
  ASSERT_EQ(State("starting-cancelling"), JOB_STATE_STARTING);
  ASSERT_TRUE(Cancel("starting-cancelling").ok());
  Finish("starting-cancelling", Finished::OUTCOME_STOPPED);
  ASSERT_TRUE(Train("starting-pausing").ok());
  ASSERT_TRUE(Pause("starting-pausing").ok());
  ASSERT_TRUE(Cancel("starting-pausing").ok());
  Finish("starting-pausing", Finished::OUTCOME_COMPLETED);
  ASSERT_TRUE(Train("starting-failed").ok());
  Finish("starting-failed", Finished::OUTCOME_FAILED);
  ASSERT_TRUE(Train("starting-recovering").ok());
  Lose("starting-recovering");
  Started("starting-recovering");
  Finish("starting-recovering", Finished::OUTCOME_COMPLETED);
  Run("running-failed");
  Finish("running-failed", Finished::OUTCOME_FAILED);
  Run("running-recovering");
  Lose("running-recovering");
  Started("running-recovering");
  ASSERT_TRUE(Cancel("running-recovering").ok());
  Finish("running-recovering", Finished::OUTCOME_FAILED);
  Run("pausing-paused");
  ASSERT_TRUE(Pause("pausing-paused").ok());
  Finish("pausing-paused", Finished::OUTCOME_STOPPED);
  ASSERT_TRUE(Resume("pausing-paused").ok());
  Started("pausing-paused");
  ASSERT_TRUE(Pause("pausing-paused").ok());
  Finish("pausing-paused", Finished::OUTCOME_COMPLETED);
  Run("pausing-failed");
  ASSERT_TRUE(Pause("pausing-failed").ok());
  Finish("pausing-failed", Finished::OUTCOME_FAILED);

  for (const JobMove& move : JobMoves()) {
    // A job is RECOVERING only within one change, which also queues it.
    if (move.from == JOB_STATE_RECOVERING && move.to == JOB_STATE_CANCELLED) continue;
    EXPECT_TRUE(moves_.contains({move.from, move.to}))
        << ShortEnumName(move.from) << " to " << ShortEnumName(move.to);
  }
  EXPECT_EQ(moves_.size(), JobMoves().size() - 1) << "and no other";
}

TEST_F(JobRulesTest, ARestartWaitsLongerEachTimeUntilThereIsACheckpoint) {
  Run("job");
  Lose("job");
  EXPECT_EQ(State("job"), JOB_STATE_STARTING) << "the first restart waits for nothing";
  Lose("job");
  EXPECT_EQ(State("job"), JOB_STATE_FAILED) << "max_restarts is 1";
  EXPECT_THAT(Get("job").failure().message(), HasSubstr("all 1 restarts are used up"));
}

TEST_F(JobRulesTest, ADeadlineFollowsTheSteadyClock) {
  workers_.free = 0;
  ASSERT_TRUE(Train("job", 0, 60).ok());
  clock_.SetBack(3600);
  clock_.Advance(59);
  Tick();
  EXPECT_EQ(State("job"), JOB_STATE_QUEUED);
  clock_.Advance(2);
  Tick();
  EXPECT_EQ(State("job"), JOB_STATE_FAILED);
}

TEST_F(JobRulesTest, ARunningJobPastItsDeadlineIsStoppedOnceWithACheckpoint) {
  ASSERT_TRUE(Train("job", 0, 60).ok());
  Started("job");
  clock_.Advance(61);
  Tick();
  Tick();
  ASSERT_EQ(workers_.sent.size(), 1U);
  EXPECT_TRUE(workers_.sent[0].second.stop_job().checkpoint());
  Finish("job", Finished::OUTCOME_STOPPED);
  EXPECT_EQ(Get("job").failure().cause(), FAILURE_CAUSE_DEADLINE);
}

TEST_F(JobRulesTest, AHigherPriorityTakesTheSlotAndTheOtherGoesOnAfterIt) {
  Run("low");
  ASSERT_TRUE(Train("high", 5).ok());
  ASSERT_EQ(workers_.sent.size(), 1U);
  EXPECT_EQ(workers_.sent[0].first, "low");
  Finish("low", Finished::OUTCOME_STOPPED);
  EXPECT_EQ(State("high"), JOB_STATE_STARTING);
  EXPECT_EQ(State("low"), JOB_STATE_QUEUED);
  EXPECT_THAT(Get("low").state_reason(), HasSubstr("preempted by job high of priority 5"));
  Started("high");
  Finish("high", Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(State("low"), JOB_STATE_STARTING);
}

TEST_F(JobRulesTest, AReportWithAnOldClaimChangesNothing) {
  Run("job");
  AttachRequest stale = Event("job");
  stale.mutable_finished()->set_outcome(Finished::OUTCOME_COMPLETED);
  Lose("job");
  Report(stale);
  EXPECT_EQ(State("job"), JOB_STATE_STARTING);
}

TEST_F(JobRulesTest, ACheckpointThatIsAwaitedIsRefusedWhenTheWorkerIsGone) {
  Run("job");
  absl::StatusOr<Checkpoint> taken;
  absl::Notification done;
  manager_->checkpoints().Take({}, "job", [&](const absl::StatusOr<Checkpoint>& result) {
    taken = result;
    done.Notify();
  });
  Settle();
  ASSERT_EQ(workers_.sent.size(), 1U);
  EXPECT_TRUE(workers_.sent[0].second.has_take_checkpoint());
  EXPECT_FALSE(done.HasBeenNotified());
  Lose("job");
  done.WaitForNotification();
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kAborted) << taken.status();
}

TEST_F(JobRulesTest, ARequestedCheckpointIsNotOneThatWasBeingWritten) {
  Run("job");
  const auto written = [&](int64_t step) {
    AttachRequest event = Event("job");
    Checkpoint& checkpoint = *event.mutable_checkpoint_written()->mutable_checkpoint();
    checkpoint.set_job_id("job");
    checkpoint.set_id(absl::StrFormat("job-step-%012d", step));
    checkpoint.set_path(absl::StrCat(temp_.path(), "/", checkpoint.id(), ".pt"));
    checkpoint.set_step(step);
    Report(event);
  };
  AttachRequest steps = Event("job");
  steps.mutable_steps()->mutable_progress()->set_step(95);
  Report(steps);
  std::vector<int64_t> taken;
  manager_->checkpoints().Take({}, "job", [&](const absl::StatusOr<Checkpoint>& result) {
    taken.push_back(result.ok() ? result->step() : -1);
  });
  Settle();
  written(90);
  EXPECT_THAT(taken, testing::IsEmpty());
  written(96);
  EXPECT_THAT(taken, testing::ElementsAre(96));
}

TEST_F(JobRulesTest, ARewoundJobsNewCheckpointOfAStepTakesThePlaceOfTheOld) {
  Run("job");
  const auto written = [&](int64_t step, uint32_t crc32c) {
    AttachRequest event = Event("job");
    Checkpoint& checkpoint = *event.mutable_checkpoint_written()->mutable_checkpoint();
    checkpoint.set_job_id("job");
    checkpoint.set_id(absl::StrFormat("job-step-%012d", step));
    checkpoint.set_path(absl::StrCat(temp_.path(), "/", checkpoint.id(), ".pt"));
    checkpoint.set_step(step);
    checkpoint.set_crc32c(crc32c);
    Report(event);
  };
  AttachRequest evaluated = Event("job");
  evaluated.mutable_evaluated()->set_step(150);
  written(140, 1);
  Report(evaluated);
  written(160, 3);
  EXPECT_EQ(Get("job").latest_checkpoint().step(), 160);
  EXPECT_EQ(Get("job").evaluation().step(), 150);
  AttachRequest rewound = Event("job");
  rewound.mutable_precision_changed()->set_step(169);
  rewound.mutable_precision_changed()->set_resumed_step(140);
  Report(rewound);
  EXPECT_FALSE(Get("job").has_evaluation()) << "it was of weights that are gone";
  EXPECT_EQ(Get("job").latest_checkpoint().step(), 140) << "a restart resumes from no later one";
  EXPECT_FALSE(manager_->queries().GetCheckpoint({}, "job-step-000000000160").ok());
  written(140, 2);
  EXPECT_EQ(Get("job").latest_checkpoint().crc32c(), 2U);
  EXPECT_EQ(manager_->queries().GetCheckpoint({}, "job-step-000000000140")->crc32c(), 2U);
  EXPECT_EQ(Get("job").latest_checkpoint().owner(), Get("job").owner());
}

TEST_F(JobRulesTest, AFailureWatchThatHasFiredClosesTheGateWhenItIsSetToEnforce) {
  manager_->SetFailureWatch(FailureWatchAction::kAdvise);
  for (const char* id : {"first", "second", "third", "fourth"}) {
    Run(id);
    AttachRequest progressed = Event(id);
    progressed.mutable_steps()->mutable_progress()->set_step(7);
    progressed.mutable_steps()->mutable_progress()->set_reduced_precision_steps(7);
    Report(progressed);
    Finish(id, Finished::OUTCOME_FAILED, FAILURE_CAUSE_CHECKPOINT);
    ASSERT_EQ(State(id), JOB_STATE_FAILED);
  }
  EXPECT_TRUE(manager_->precision().gate().enabled);
  manager_->SetFailureWatch(FailureWatchAction::kEnforce);
  Settle();
  EXPECT_FALSE(manager_->precision().gate().enabled);
  EXPECT_THAT(manager_->precision().gate().reason,
              HasSubstr("4 of the last 4 jobs in reduced precision failed"));
  manager_->SetFailureWatch(FailureWatchAction::kAdvise);
  Settle();
  EXPECT_TRUE(manager_->precision().gate().enabled);
}

TEST_F(JobRulesTest, AfterARestartAJobKeepsAWorkerThatLivesAndElseIsQueued) {
  workers_.free = 2;
  Run("job");
  workers_.adopts = true;
  Open();
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING);
  workers_.adopts = false;
  workers_.begun.clear();
  Open();
  EXPECT_EQ(State("job"), JOB_STATE_STARTING) << "queued, and given to another";
  EXPECT_EQ(Get("job").restarts(), 0) << "no fault of the job's";
}

}  // namespace
}  // namespace genesis
