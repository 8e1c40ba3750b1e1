// Tests of jobs of several ranks, with a clock and workers controlled by the test.
#include "tests/server/job_rules_fixture.h"

namespace genesis {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class GangRulesTest : public JobRulesTest {
 protected:
  GangRulesTest() { workers_.free = 3; }

  absl::Status TrainGang(const std::string& id, int ranks, int priority = 0) {
    return Train(id, priority, /*deadline=*/0, ranks);
  }
  void RunGang(const std::string& id, int ranks = 3) {
    ASSERT_TRUE(TrainGang(id, ranks).ok());
    Started(id);
    ASSERT_EQ(State(id), JOB_STATE_RUNNING);
  }
  void FinishRank(const std::string& id, int rank, Finished::Outcome outcome,
                  FailureCause cause = FAILURE_CAUSE_WORKER_EXIT,
                  const std::string& message = "another rank has ended") {
    AttachRequest event = Event(id);
    event.mutable_finished()->set_outcome(outcome);
    if (outcome == Finished::OUTCOME_FAILED) {
      event.mutable_finished()->mutable_failure()->set_cause(cause);
      event.mutable_finished()->mutable_failure()->set_message(message);
    }
    Report(event, rank);
  }
  void LoseRank(const std::string& id, int rank, int signal = SIGKILL,
                const std::string& forced = "") {
    WorkerExit exit;
    exit.job_id = id;
    exit.claim = Get(id).claim();
    exit.rank = rank;
    exit.exit.known = true;
    exit.exit.signal = signal;
    exit.forced = forced;
    manager_->worker_events()->OnWorkerGone(exit);
    Settle();
    Note();
  }
  // Frees the slots of the job's workers.
  void FreeSlots(const std::string& id) {
    workers_.begun.erase(id);
    manager_->worker_events()->OnCapacity();
    Settle();
  }
  void Steps(const std::string& id, int rank, int64_t step, double seconds, double waits) {
    AttachRequest event = Event(id);
    training::v1::Steps& steps = *event.mutable_steps();
    steps.mutable_progress()->set_step(step);
    steps.mutable_progress()->set_total_steps(100);
    steps.set_new_steps(1);
    steps.add_step_seconds(static_cast<float>(seconds));
    steps.set_wait_seconds(waits);
    Report(event, rank);
  }
};

TEST_F(GangRulesTest, AllWorkersGetOneClaimAndARankEach) {
  RunGang("job");
  const Job job = Get("job");
  EXPECT_EQ(job.claim(), 1);
  ASSERT_EQ(job.ranks_size(), 3);
  EXPECT_EQ(job.worker().worker_id(), job.ranks(0).worker().worker_id());
  EXPECT_THAT(job.state_reason(), HasSubstr("training"));
  const RankAssignment& last = workers_.begun["job"].rank();
  EXPECT_EQ(last.rank(), 2);
  EXPECT_EQ(last.size(), 3);
  EXPECT_EQ(last.local_rank(), 2);
  EXPECT_EQ(last.local_size(), 3);
  EXPECT_EQ(last.address(), "127.0.0.1") << "all are on this host";
  EXPECT_THAT(last.secret(), SizeIs(32));
  FinishRank("job", 1, Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING) << "rank 0 speaks for the job";
  FinishRank("job", 0, Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(State("job"), JOB_STATE_SUCCEEDED);
  EXPECT_THAT(workers_.abandoned, IsEmpty());
}

TEST_F(GangRulesTest, OneWorkerAloneHasNoRank) {
  ASSERT_TRUE(TrainGang("job", 1).ok());
  EXPECT_THAT(Get("job").ranks(), IsEmpty());
  EXPECT_FALSE(workers_.begun["job"].has_rank());
}

TEST_F(GangRulesTest, ARankThatIsGoneEndsTheAttemptOnceAllAre) {
  RunGang("job");
  LoseRank("job", 1);
  ASSERT_THAT(workers_.abandoned, SizeIs(1));
  EXPECT_THAT(workers_.abandoned[0].second,
              HasSubstr("rank 1 on cpu: the worker was ended by signal 9"));
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING) << "two of its workers may still write";
  FinishRank("job", 0, Finished::OUTCOME_FAILED);
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING);
  FreeSlots("job");
  FinishRank("job", 2, Finished::OUTCOME_FAILED);
  EXPECT_EQ(Get("job").claim(), 2) << "given to other workers";
  EXPECT_EQ(Get("job").restarts(), 1) << "one restart for three ends";
  // The cause is the end of the killed rank, whichever rank reports first.
  FreeSlots("job");
  FinishRank("job", 0, Finished::OUTCOME_FAILED);
  FinishRank("job", 2, Finished::OUTCOME_FAILED);
  LoseRank("job", 1, SIGSEGV);
  EXPECT_EQ(State("job"), JOB_STATE_FAILED);
  EXPECT_EQ(Get("job").failure().cause(), FAILURE_CAUSE_SIGNAL);
  EXPECT_EQ(Get("job").failure().signal(), SIGSEGV);
  EXPECT_THAT(Get("job").failure().message(), HasSubstr("rank 1 on cpu: "));
}

TEST_F(GangRulesTest, RanksThatLostEachOtherAreARestart) {
  RunGang("job");
  FreeSlots("job");
  for (const int rank : {0, 1, 2}) FinishRank("job", rank, Finished::OUTCOME_FAILED);
  EXPECT_EQ(Get("job").claim(), 2);
  EXPECT_EQ(Get("job").restarts(), 1);
}

TEST_F(GangRulesTest, AFailureOfOneRankIsTheJobsWithItsName) {
  RunGang("job");
  FinishRank("job", 2, Finished::OUTCOME_FAILED, FAILURE_CAUSE_DATA, "there is no such file");
  FinishRank("job", 0, Finished::OUTCOME_FAILED);
  LoseRank("job", 1, SIGKILL, "it was told to end");
  EXPECT_EQ(State("job"), JOB_STATE_FAILED);
  EXPECT_EQ(Get("job").failure().cause(), FAILURE_CAUSE_DATA);
  EXPECT_EQ(Get("job").failure().message(), "rank 2 on cpu: there is no such file");
}

TEST_F(GangRulesTest, ItIsPausedAndCancelledThroughRank0) {
  RunGang("job");
  ASSERT_TRUE(Pause("job").ok());
  ASSERT_THAT(workers_.sent, SizeIs(1));
  EXPECT_TRUE(workers_.sent[0].second.stop_job().checkpoint());
  FinishRank("job", 2, Finished::OUTCOME_STOPPED);
  EXPECT_EQ(State("job"), JOB_STATE_PAUSING);
  FreeSlots("job");
  FinishRank("job", 0, Finished::OUTCOME_STOPPED);
  EXPECT_EQ(State("job"), JOB_STATE_PAUSED);
  ASSERT_TRUE(Resume("job").ok());
  Started("job");
  ASSERT_TRUE(Cancel("job").ok());
  LoseRank("job", 1);
  FinishRank("job", 0, Finished::OUTCOME_FAILED);
  EXPECT_EQ(State("job"), JOB_STATE_CANCELLING);
  FinishRank("job", 2, Finished::OUTCOME_FAILED);
  EXPECT_EQ(State("job"), JOB_STATE_CANCELLED) << "that a rank was lost makes no difference";
}

TEST_F(GangRulesTest, AHangOfOneRankIsARestartThatNamesIt) {
  RunGang("job");
  manager_->worker_events()->OnWorkerHung("job", 1, 2, "no progress for 10m while making steps");
  Settle();
  LoseRank("job", 2, SIGKILL, "no progress for 10m while making steps");
  FinishRank("job", 0, Finished::OUTCOME_FAILED);
  FreeSlots("job");
  FinishRank("job", 1, Finished::OUTCOME_FAILED);
  EXPECT_EQ(Get("job").restarts(), 1);
  const auto events = manager_->view().EventsAfter({.job_id = "job"}, 0, 1000, false);
  ASSERT_TRUE(events.ok());
  bool told = false;
  for (const JobEvent& event : events->events) {
    told = told || event.state_changed().reason().find(
                       "rank 2 on cpu made no progress for 10m while making "
                       "steps, or waited for a rank that hangs") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

TEST_F(GangRulesTest, ItWaitsForAllItsSlotsAndTakesThoseOfLowerPriority) {
  Run("one");
  Run("two");
  ASSERT_TRUE(TrainGang("gang", 3, /*priority=*/5).ok());
  EXPECT_EQ(State("gang"), JOB_STATE_QUEUED);
  EXPECT_EQ(Get("gang").queue_reason(), "needs 3 slots at one time; 1 of 3 are free");
  ASSERT_THAT(workers_.sent, SizeIs(2)) << "both are asked to stop, no more and no fewer";
  Finish("one", Finished::OUTCOME_STOPPED);
  EXPECT_EQ(State("one"), JOB_STATE_QUEUED) << "what it left is kept for the gang";
  EXPECT_EQ(State("gang"), JOB_STATE_QUEUED);
  Finish("two", Finished::OUTCOME_STOPPED);
  EXPECT_EQ(State("gang"), JOB_STATE_STARTING);
  Started("gang");
  FreeSlots("gang");
  FinishRank("gang", 0, Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(State("one"), JOB_STATE_STARTING);
  EXPECT_EQ(State("two"), JOB_STATE_STARTING);
}

TEST_F(GangRulesTest, ItSaysThatItWaitsForWorkersToStart) {
  workers_.cold = true;
  ASSERT_TRUE(TrainGang("gang", 3).ok());
  EXPECT_EQ(Get("gang").queue_reason(),
            "needs 3 slots at one time; 3 of 3 are free, and it waits for their workers or for "
            "memory");
}

TEST_F(GangRulesTest, ItStopsNobodyWhereThatWouldNotDo) {
  ASSERT_TRUE(Train("high", 9).ok());
  Started("high");
  Run("low");
  ASSERT_TRUE(TrainGang("gang", 3, /*priority=*/5).ok());
  EXPECT_THAT(workers_.sent, IsEmpty());
  EXPECT_EQ(State("low"), JOB_STATE_RUNNING);
}

TEST_F(GangRulesTest, OthersPassOneThatWaitsForTenMinutesAtMost) {
  Run("running");
  ASSERT_TRUE(TrainGang("gang", 3).ok());
  ASSERT_TRUE(Train("passing").ok());
  EXPECT_EQ(State("passing"), JOB_STATE_STARTING);
  Started("passing");
  Finish("passing", Finished::OUTCOME_COMPLETED);
  clock_.Advance(601);
  ASSERT_TRUE(Train("late").ok());
  EXPECT_EQ(State("late"), JOB_STATE_QUEUED) << "the gang has waited long enough";
  Finish("running", Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(State("gang"), JOB_STATE_STARTING);
  EXPECT_EQ(State("late"), JOB_STATE_QUEUED);
}

TEST_F(GangRulesTest, MoreRanksThanSlotsAreRefusedOrWaitForOtherHosts) {
  const absl::Status refused = TrainGang("wide", 4);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              HasSubstr("distributed.ranks is 4; accepted: 1 to 3, for each rank takes a slot"));
  workers_.remote = true;
  ASSERT_TRUE(TrainGang("wide", 4).ok());
  EXPECT_EQ(
      Get("wide").queue_reason(),
      "needs 4 slots at one time, and there are 3; it starts when workers of other hosts bring "
      "the others");
  clock_.Advance(10000);
  Run("small");
  workers_.free = 5;
  manager_->worker_events()->OnCapacity();
  Settle();
  EXPECT_EQ(State("wide"), JOB_STATE_STARTING);
}

TEST_F(GangRulesTest, OneThatMayHaveFewerRanksBeginsWithThemAndGrows) {
  const auto train = [&](const std::string& id) {
    TrainRequest request;
    request.set_job_id(id);
    JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->mutable_world_model();
    spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories()->set_episodes(4);
    spec.mutable_training()->set_epochs(1);
    spec.mutable_distributed()->set_ranks(3);
    spec.mutable_distributed()->set_min_ranks(2);
    ids_.insert(id);
    return Await<Job>(
        [&](const auto& callback) { manager_->admission().Train(request, {}, callback); });
  };
  Run("other");
  ASSERT_TRUE(train("elastic").ok());
  Tick();
  EXPECT_EQ(State("elastic"), JOB_STATE_QUEUED) << "all ranks may come soon";
  clock_.Advance(31);
  Tick();
  ASSERT_EQ(State("elastic"), JOB_STATE_STARTING);
  EXPECT_EQ(Get("elastic").ranks_size(), 2);
  Started("elastic");
  Finish("other", Finished::OUTCOME_COMPLETED);
  Tick();
  EXPECT_THAT(workers_.sent, IsEmpty()) << "not at once";
  clock_.Advance(31);
  Tick();
  Tick();
  ASSERT_THAT(workers_.sent, SizeIs(1));
  EXPECT_TRUE(workers_.sent[0].second.stop_job().checkpoint());
  FreeSlots("elastic");
  FinishRank("elastic", 0, Finished::OUTCOME_STOPPED);
  EXPECT_EQ(Get("elastic").ranks_size(), 3);
  EXPECT_EQ(Get("elastic").restarts(), 0);
  // After the job has lost a rank, it waits again before it continues with fewer ranks.
  Started("elastic");
  workers_.free = 2;
  FreeSlots("elastic");
  LoseRank("elastic", 2);
  FinishRank("elastic", 0, Finished::OUTCOME_FAILED);
  FinishRank("elastic", 1, Finished::OUTCOME_FAILED);
  EXPECT_EQ(State("elastic"), JOB_STATE_QUEUED);
  clock_.Advance(31);
  Tick();
  EXPECT_EQ(State("elastic"), JOB_STATE_STARTING);
  EXPECT_EQ(Get("elastic").ranks_size(), 2);
  EXPECT_EQ(Get("elastic").restarts(), 1);
}

TEST_F(GangRulesTest, UseDdpAloneTakesEverySlot) {
  TrainRequest request;
  request.set_job_id("all");
  JobSpec& spec = *request.mutable_spec();
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories()->set_episodes(4);
  spec.mutable_training()->set_epochs(1);
  spec.mutable_training()->set_use_ddp(true);
  ids_.insert("all");
  ASSERT_TRUE(Await<Job>([&](const auto& callback) {
                manager_->admission().Train(request, {}, callback);
              }).ok());
  EXPECT_EQ(Get("all").ranks_size(), 3);
  EXPECT_EQ(Get("all").spec().distributed().ranks(), 0) << "it is decided with each attempt";
}

TEST_F(GangRulesTest, AnyHostsNoToReducedPrecisionIsOneForAll) {
  workers_.vetoes[1] = "disabled by ENABLE_FP16_TRAINING=false on gpu-7";
  TrainRequest request;
  request.set_job_id("mixed");
  JobSpec& spec = *request.mutable_spec();
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories()->set_episodes(4);
  spec.mutable_training()->set_epochs(1);
  spec.mutable_precision()->set_mode(PRECISION_MODE_BF16);
  spec.mutable_distributed()->set_ranks(2);
  ids_.insert("mixed");
  ASSERT_TRUE(Await<Job>([&](const auto& callback) {
                manager_->admission().Train(request, {}, callback);
              }).ok());
  EXPECT_EQ(Get("mixed").precision().mode(), PRECISION_MODE_FP32);
  EXPECT_THAT(Get("mixed").precision().reason(), HasSubstr("on gpu-7"));
  EXPECT_EQ(workers_.begun["mixed"].precision().mode(), PRECISION_MODE_FP32);
  ASSERT_EQ(workers_.begun["mixed"].allowed_modes_size(), 1);
  EXPECT_EQ(workers_.begun["mixed"].allowed_modes(0), PRECISION_MODE_FP32);
}

TEST_F(GangRulesTest, AfterARestartAllItsWorkersAreAdoptedOrItBeginsAnew) {
  RunGang("job");
  workers_.adopts = true;
  Open();
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING);
  EXPECT_THAT(workers_.abandoned, IsEmpty());
  // One of the workers is gone when the next daemon starts.
  workers_.lost.insert(Get("job").ranks(2).worker().worker_id());
  Open();
  ASSERT_THAT(workers_.abandoned, SizeIs(1));
  EXPECT_THAT(workers_.abandoned[0].second,
              HasSubstr("rank 2 on cpu did not outlive a restart of the daemon"));
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING) << "until the others have ended";
  FinishRank("job", 0, Finished::OUTCOME_FAILED);
  FreeSlots("job");
  LoseRank("job", 1, SIGKILL, "it was told to end");
  EXPECT_EQ(Get("job").claim(), 2);
  EXPECT_EQ(Get("job").restarts(), 0) << "no fault of the job's";
  // No worker is left.
  workers_.adopts = false;
  workers_.begun.clear();
  Open();
  EXPECT_EQ(Get("job").claim(), 3);
  EXPECT_EQ(Get("job").restarts(), 0);
}

TEST_F(GangRulesTest, EachRankShowsHowItDoesAndTheOneTheOthersWaitFor) {
  RunGang("job");
  Steps("job", 0, 10, 0.5, 0.3);
  Steps("job", 1, 10, 0.5, 0.01);
  EXPECT_FALSE(Get("job").ranks(1).straggler()) << "not all have told of a step";
  const char* const waits = "\ngenesis_rank_wait_ratio{";
  EXPECT_THAT(metrics_.RenderText(), Not(HasSubstr(waits)));
  Steps("job", 2, 9, 0.5, 0.28);
  EXPECT_THAT(metrics_.RenderText(), ContainsRegex("\ngenesis_rank_wait_ratio.* 0\\.(6|59999)"));
  const Job job = Get("job");
  EXPECT_EQ(job.ranks(2).step(), 9);
  EXPECT_NEAR(job.ranks(1).step_seconds(), 0.5, 1e-6);
  EXPECT_NEAR(job.ranks(1).wait_seconds(), 0.01, 1e-6);
  EXPECT_FALSE(job.ranks(0).straggler());
  EXPECT_TRUE(job.ranks(1).straggler());
  EXPECT_FALSE(job.ranks(2).straggler());
  EXPECT_EQ(job.progress().step(), 10) << "that of rank 0";
  clock_.Advance(4);
  EXPECT_TRUE(Get("job").ranks(1).straggler());
  clock_.Advance(2);
  EXPECT_FALSE(Get("job").ranks(1).straggler()) << "nobody has told of a step for long";
  Steps("job", 0, 11, 0.5, 0.3);
  EXPECT_FALSE(Get("job").ranks(1).straggler()) << "rank 1 may be stopped";
  Steps("job", 1, 11, 0.5, 0.01);
  Steps("job", 2, 11, 0.5, 0.28);
  EXPECT_TRUE(Get("job").ranks(1).straggler());
  // Reports of rank 1 are not added to the counters.
  EXPECT_EQ(manager_->queries().Stats({}, StatsRequest())->training_steps(), 2);
  FinishRank("job", 0, Finished::OUTCOME_COMPLETED);
  EXPECT_EQ(State("job"), JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("job").ranks(2).step(), 11) << "all have made the steps of rank 0";
  EXPECT_THAT(metrics_.RenderText(), Not(HasSubstr(waits)));
}

TEST_F(GangRulesTest, ADrainedWorkerOfAnyRankStopsTheJob) {
  RunGang("job");
  workers_.retired = "job";
  const std::string worker = Get("job").ranks(2).worker().worker_id();
  ASSERT_TRUE(Await<DrainWorkerResponse>([&](const auto& callback) {
                manager_->requests().DrainWorker(worker, callback);
              }).ok());
  ASSERT_THAT(workers_.sent, SizeIs(1));
  EXPECT_TRUE(workers_.sent[0].second.stop_job().checkpoint());
  FreeSlots("job");
  FinishRank("job", 0, Finished::OUTCOME_STOPPED);
  EXPECT_EQ(Get("job").claim(), 2);
  EXPECT_EQ(Get("job").restarts(), 0);
}

TEST_F(GangRulesTest, ReportsOfAStrangeRankChangeNothing) {
  RunGang("job");
  Steps("job", 7, 50, 0.5, 0);
  FinishRank("job", 7, Finished::OUTCOME_FAILED);
  LoseRank("job", 7);
  AttachRequest event = Event("job");
  event.mutable_checkpoint_written()->mutable_checkpoint()->set_id("job-step-1");
  Report(event, /*rank=*/1);
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING);
  EXPECT_FALSE(Get("job").has_latest_checkpoint());
  EXPECT_THAT(workers_.abandoned, IsEmpty());
}

}  // namespace
}  // namespace genesis
