// Tests of jobs whose workers are requested from a cluster. The test controls the clock, the
// workers and the cluster.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/launchers/launchers.h"
#include "tests/server/job_rules_fixture.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// A cluster controlled by the test. Callbacks run immediately, on the caller's thread.
class HeldCluster final : public Launchers {
 public:
  bool Has(LauncherKind kind) const override { return here && kind == LAUNCHER_KIND_SLURM; }
  void Submit(LauncherKind, const LaunchRequest& request,
              const Callback<std::string>& callback) override {
    asked.push_back(request);
    if (silent) return;
    if (!refusal.ok()) return callback(refusal);
    const std::string id = std::to_string(++last_);
    known[id] = {.name = request.name, .cluster_id = id, .reason = "PENDING: Priority"};
    callback(id);
  }
  void Poll(LauncherKind, const std::string& prefix,
            const Callback<std::vector<LaunchStatus>>& callback) override {
    ++polls;
    if (silent) return;
    if (!blind.ok()) return callback(blind);
    std::vector<LaunchStatus> all;
    for (const auto& [id, status] : known) {
      if (status.name.rfind(prefix, 0) == 0) all.push_back(status);
    }
    callback(all);
  }
  void Cancel(LauncherKind, const std::string& name, const std::string& cluster_id,
              const std::function<void(const absl::Status&)>& callback) override {
    cancelled.push_back(cluster_id);
    if (silent) return;
    for (auto& [id, status] : known) {
      if (status.name == name && (cluster_id.empty() || id == cluster_id)) {
        status.end = LaunchEnd::kCancelled;
        status.reason = "CANCELLED";
      }
    }
    callback(absl::OkStatus());
  }

  bool here = true;
  bool silent = false;  // If true, callbacks are not run.
  absl::Status refusal;
  absl::Status blind;
  std::vector<LaunchRequest> asked;
  std::vector<std::string> cancelled;
  std::map<std::string, LaunchStatus> known;  // Keyed by the cluster's ID.
  int polls = 0;

 private:
  int last_ = 16;
};

class SubmissionsTest : public JobRulesTest {
 protected:
  SubmissionsTest() {
    launchers_ = &cluster_;
    workers_.remote = true;
    Open();
  }

  absl::Status Submit(const std::string& id, int ranks = 2, int restarts = 1) {
    TrainRequest request = Request(id);
    request.mutable_spec()->mutable_distributed()->set_ranks(ranks);
    request.mutable_spec()->mutable_distributed()->set_launcher(LAUNCHER_KIND_SLURM);
    request.mutable_spec()->set_max_restarts(restarts);
    const absl::Status submitted = TrainAs(request);
    Pass(0);
    return submitted;
  }
  // Advances the clock and runs everything that has become due.
  void Pass(int seconds) {
    clock_.Advance(seconds);
    for (int i = 0; i < 3; ++i) Tick();
  }
  std::string NameOf(const std::string& id) { return Get(id).submission().name(); }
  LaunchStatus& Known(const std::string& id) {
    return cluster_.known[Get(id).submission().cluster_id()];
  }
  // Simulates that the cluster starts the workers and they attach.
  void Attach(const std::string& id, int workers = 2) {
    Known(id).running = true;
    Known(id).reason = "RUNNING";
    workers_.submitted[NameOf(id)] = workers;
    manager_->worker_events()->OnCapacity();
    Settle();
    Pass(5);
  }
  void RunSubmitted(const std::string& id) {
    ASSERT_TRUE(Submit(id).ok());
    Attach(id);
    workers_.submitted.erase(NameOf(id));
    Started(id);
    ASSERT_EQ(State(id), JOB_STATE_RUNNING);
  }
  void EndThere(const std::string& id, LaunchEnd end, const std::string& reason) {
    Known(id).running = false;
    Known(id).end = end;
    Known(id).reason = reason;
    Pass(5);
  }
  // Simulates that both ranks of the first attempt end without a report.
  void LoseWorkers(const std::string& id, const std::string& forced) {
    for (const int rank : {0, 1}) {
      WorkerExit exit;
      exit.job_id = id;
      exit.claim = 1;
      exit.rank = rank;
      exit.exit.known = false;
      exit.forced = forced;
      manager_->worker_events()->OnWorkerGone(exit);
    }
  }
  void Stopped(const std::string& id) {
    AttachRequest event = Event(id);
    event.mutable_finished()->set_outcome(Finished::OUTCOME_STOPPED);
    workers_.begun.erase(id);
    Report(event);
  }

  HeldCluster cluster_;
};

TEST_F(SubmissionsTest, TheClusterIsAskedForAsManyWorkersAsRanksAndTheyGetTheJob) {
  ASSERT_TRUE(Submit("job").ok());
  ASSERT_THAT(cluster_.asked, SizeIs(1));
  EXPECT_EQ(cluster_.asked[0].workers, 2);
  EXPECT_EQ(cluster_.asked[0].job_id, "job");
  EXPECT_THAT(cluster_.asked[0].name, testing::MatchesRegex("genesis-[0-9a-f]{8}-1-job"));
  EXPECT_THAT(workers_.reservations, ElementsAre(cluster_.asked[0].name));
  EXPECT_EQ(Get("job").queue_reason(), "Slurm job 17 is PENDING: Priority");
  EXPECT_EQ(Get("job").queue_position(), 0) << "its place is in the cluster's queue";
  Known("job").running = true;
  Known("job").reason = "RUNNING";
  workers_.submitted[NameOf("job")] = 1;
  Pass(5);
  EXPECT_EQ(Get("job").queue_reason(), "Slurm job 17 runs; 1 of 2 workers have attached");
  Known("job").reason = "SUSPENDED";
  Pass(5);
  EXPECT_EQ(Get("job").queue_reason(),
            "Slurm job 17 runs (SUSPENDED); 1 of 2 workers have attached");
  Attach("job");
  EXPECT_EQ(State("job"), JOB_STATE_STARTING);
  const Job job = Get("job");
  ASSERT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(1).worker().reservation(), job.submission().name());
  EXPECT_EQ(job.submission().claim(), job.claim());
  EXPECT_THAT(cluster_.asked, SizeIs(1));
  EXPECT_THAT(cluster_.cancelled, IsEmpty());
}

TEST_F(SubmissionsTest, ItTakesNoSlotOfTheDaemonAndNobodyTakesItsWorkers) {
  RunSubmitted("far");
  Run("near");
  EXPECT_EQ(workers_.begun["near"].rank().size(), 0);
  // A job with a higher priority may preempt jobs, but not one that takes no slot.
  ASSERT_TRUE(Train("high", /*priority=*/9).ok());
  ASSERT_THAT(workers_.sent, SizeIs(1));
  EXPECT_EQ(workers_.sent[0].first, "near");
  ASSERT_TRUE(Submit("wide", /*ranks=*/100).ok()) << "more than the daemon has slots";
}

TEST_F(SubmissionsTest, OneThatIsDoneIsLeftToEndByItself) {
  RunSubmitted("job");
  AttachRequest event = Event("job");
  event.mutable_finished()->set_outcome(Finished::OUTCOME_COMPLETED);
  Report(event);
  EXPECT_EQ(State("job"), JOB_STATE_SUCCEEDED);
  Pass(5);
  EXPECT_THAT(cluster_.cancelled, IsEmpty());
  EXPECT_THAT(workers_.reservations, IsEmpty());
  Pass(30);
  EXPECT_THAT(cluster_.cancelled, ElementsAre("17")) << "it has had its time";
  Pass(5);
  Pass(600);
  EXPECT_THAT(cluster_.cancelled, SizeIs(1));
}

TEST_F(SubmissionsTest, CancelAndPauseEndItThere) {
  ASSERT_TRUE(Submit("waits").ok());
  ASSERT_TRUE(Cancel("waits").ok());
  Pass(0);
  EXPECT_THAT(cluster_.cancelled, ElementsAre("17"));
  RunSubmitted("runs");
  ASSERT_TRUE(Pause("runs").ok());
  Pass(5);
  EXPECT_THAT(cluster_.cancelled, SizeIs(1)) << "it writes its checkpoint";
  Stopped("runs");
  EXPECT_EQ(State("runs"), JOB_STATE_PAUSED);
  Pass(0);
  EXPECT_THAT(cluster_.cancelled, ElementsAre("17", "18"));
  Pass(5);
  ASSERT_TRUE(Resume("runs").ok());
  Pass(0);
  EXPECT_EQ(Get("runs").submission().number(), 2);
  EXPECT_EQ(Get("runs").submission().cluster_id(), "19");
  EXPECT_EQ(Get("runs").restarts(), 0);
}

TEST_F(SubmissionsTest, OneThatIsResumedWhileItIsEndedIsSubmittedOnceThatIsOver) {
  ASSERT_TRUE(Submit("job").ok());
  cluster_.silent = true;
  ASSERT_TRUE(Pause("job").ok());
  Pass(0);
  ASSERT_THAT(cluster_.cancelled, SizeIs(1));
  ASSERT_TRUE(Resume("job").ok());
  Pass(5);
  EXPECT_EQ(Get("job").submission().number(), 1);
  EXPECT_THAT(workers_.reservations, IsEmpty()) << "workers that come now are refused";
}

TEST_F(SubmissionsTest, AWarnedJobIsSubmittedAgainWithoutARestart) {
  RunSubmitted("job");
  Stopped("job");  // SIGTERM made its workers checkpoint.
  EXPECT_EQ(State("job"), JOB_STATE_QUEUED);
  Pass(1);
  EXPECT_THAT(cluster_.asked, SizeIs(1)) << "the first one is still there";
  EXPECT_EQ(Get("job").queue_reason(),
            "waits for the end of Slurm job 17, which its last attempt had");
  EndThere("job", LaunchEnd::kDone, "TIMEOUT: TimeLimit");
  EXPECT_THAT(cluster_.asked, SizeIs(2));
  EXPECT_EQ(Get("job").restarts(), 0);
  EXPECT_EQ(Get("job").submission().number(), 2);
}

TEST_F(SubmissionsTest, OneThatSomebodyCancelsThereIsARestart) {
  RunSubmitted("job");
  Stopped("job");
  EndThere("job", LaunchEnd::kCancelled, "CANCELLED");
  EXPECT_EQ(Get("job").restarts(), 1);
  EXPECT_EQ(Get("job").state_reason(), "Slurm job 17 has ended: CANCELLED; restart 1 of 1");
  EXPECT_THAT(cluster_.asked, SizeIs(2));
  // A cancellation before the workers have attached is a restart too, and none is left.
  EndThere("job", LaunchEnd::kCancelled, "CANCELLED");
  EXPECT_EQ(State("job"), JOB_STATE_FAILED);
  EXPECT_EQ(Get("job").failure().message(),
            "Slurm job 18 has ended: CANCELLED, before all of its workers had attached; all 1 "
            "restarts are used up");
}

TEST_F(SubmissionsTest, WorkersThatTheClusterKilledAreARestartWithItsReason) {
  RunSubmitted("job");
  EndThere("job", LaunchEnd::kFailed, "NODE_FAIL");
  ASSERT_TRUE(workers_.expected_exits.contains("job")) << "nobody waits for them to come back";
  LoseWorkers("job", "Slurm job 17 has ended: NODE_FAIL");
  Settle();
  EXPECT_EQ(Get("job").restarts(), 1);
  EXPECT_THAT(Get("job").state_reason(), HasSubstr("Slurm job 17 has ended: NODE_FAIL"));
  Pass(0);
  EXPECT_THAT(cluster_.asked, SizeIs(2));
}

TEST_F(SubmissionsTest, PreemptionThereIsNoRestart) {
  RunSubmitted("job");
  EndThere("job", LaunchEnd::kPreempted, "PREEMPTED");
  LoseWorkers("job", "");
  Settle();
  EXPECT_EQ(State("job"), JOB_STATE_QUEUED);
  EXPECT_EQ(Get("job").restarts(), 0);
  EXPECT_THAT(Get("job").state_reason(), HasSubstr("Slurm job 17 has ended: PREEMPTED"));
  Pass(0);
  EndThere("job", LaunchEnd::kPreempted, "PREEMPTED");
  EXPECT_EQ(Get("job").restarts(), 0) << "nor while it waits";
  EXPECT_THAT(cluster_.asked, SizeIs(3));
}

TEST_F(SubmissionsTest, OneThatIsSuspendedThereKeepsItsPlaceAndGoesOn) {
  RunSubmitted("job");
  const std::string name = NameOf("job");
  Stopped("job");  // SIGTERM made its workers checkpoint.
  Pass(1);
  Known("job").running = false;
  Known("job").suspended = true;
  Known("job").reason = "Suspended";
  Pass(5);
  EXPECT_EQ(Get("job").queue_reason(), "Slurm job 17 is Suspended");
  Pass(600);
  EXPECT_THAT(cluster_.cancelled, IsEmpty());
  EXPECT_THAT(workers_.reservations, ElementsAre(name));
  Known("job").suspended = false;
  Attach("job");
  Started("job");
  EXPECT_EQ(State("job"), JOB_STATE_RUNNING);
  EXPECT_EQ(Get("job").restarts(), 0);
  EXPECT_EQ(Get("job").submission().name(), name);
  EXPECT_THAT(cluster_.asked, SizeIs(1));
}

TEST_F(SubmissionsTest, OneThatIsSuspendedThereIsEndedOnceNobodyWantsIt) {
  RunSubmitted("job");
  Stopped("job");
  Known("job").suspended = true;
  Pass(5);
  ASSERT_THAT(cluster_.cancelled, IsEmpty());
  ASSERT_TRUE(Pause("job").ok());
  Pass(5);
  EXPECT_THAT(cluster_.cancelled, ElementsAre("17"));
}

TEST_F(SubmissionsTest, ARefusalIsToldAndTriedAgainUnderTheSameName) {
  cluster_.refusal = absl::FailedPreconditionError("Slurm refuses the job: \x01 too wide");
  ASSERT_TRUE(Submit("job").ok());
  EXPECT_EQ(Get("job").queue_reason(),
            "could not be submitted to Slurm and is tried again: Slurm refuses the job: \\x01 too "
            "wide");
  Pass(0);
  EXPECT_THAT(cluster_.asked, SizeIs(1)) << "not at once";
  Pass(2);
  EXPECT_THAT(cluster_.asked, SizeIs(2));
  Pass(2);
  EXPECT_THAT(cluster_.asked, SizeIs(2)) << "the pauses grow";
  cluster_.refusal = absl::OkStatus();
  Pass(60);
  ASSERT_THAT(cluster_.asked, SizeIs(3));
  EXPECT_EQ(cluster_.asked[0].name, cluster_.asked[2].name);
  EXPECT_EQ(Get("job").submission().state(), SUBMISSION_STATE_PENDING);
  EXPECT_EQ(State("job"), JOB_STATE_QUEUED);
}

TEST_F(SubmissionsTest, AClusterThatCannotBeAskedChangesNothing) {
  RunSubmitted("runs");
  ASSERT_TRUE(Submit("waits").ok());
  cluster_.blind = absl::UnavailableError("Slurm cannot be asked: squeue exited with 1");
  Pass(600);
  EXPECT_EQ(State("runs"), JOB_STATE_RUNNING);
  EXPECT_EQ(
      Get("waits").queue_reason(),
      "Slurm job 18 is in a state that is not known: Slurm cannot be asked: squeue exited with 1");
  cluster_.blind = absl::OkStatus();
  Pass(5);
  EXPECT_EQ(Get("waits").queue_reason(), "Slurm job 18 is PENDING: Priority");
  EXPECT_THAT(cluster_.asked, SizeIs(2));
}

TEST_F(SubmissionsTest, ADaemonThatDiedBeforeTheAnswerAsksUnderTheSameName) {
  cluster_.silent = true;
  ASSERT_TRUE(Submit("job").ok());
  ASSERT_THAT(cluster_.asked, SizeIs(1));
  cluster_.silent = false;
  Open();
  Pass(0);
  ASSERT_THAT(cluster_.asked, SizeIs(2));
  EXPECT_EQ(cluster_.asked[0].name, cluster_.asked[1].name);
  EXPECT_THAT(workers_.reservations, ElementsAre(cluster_.asked[0].name));
  // A daemon that knows the cluster's ID does not submit again.
  Open();
  Pass(5);
  EXPECT_THAT(cluster_.asked, SizeIs(2));
  EXPECT_EQ(Get("job").submission().cluster_id(), "17");
}

TEST_F(SubmissionsTest, WhatNoJobWantsIsEndedAndWhatIsOthersIsLeftAlone) {
  ASSERT_TRUE(Submit("job").ok());
  const std::string name = NameOf("job");
  const std::string prefix = name.substr(0, name.find("-1-job"));
  cluster_.known["70"] = {.name = prefix + "-4-gone", .cluster_id = "70"};
  cluster_.known["71"] = {.name = name, .cluster_id = "71"};  // Duplicate.
  cluster_.known["72"] = {.name = "genesis-00000000-1-job", .cluster_id = "72"};
  cluster_.known["73"] = {.name = prefix + "-3-old", .cluster_id = "73", .end = LaunchEnd::kDone};
  Pass(5);
  EXPECT_THAT(cluster_.cancelled, ElementsAre("70", "71"));
  EXPECT_EQ(State("job"), JOB_STATE_QUEUED);
  EXPECT_EQ(Get("job").submission().cluster_id(), "17");
}

TEST_F(SubmissionsTest, OneThatTheClusterForgotIsARestart) {
  ASSERT_TRUE(Submit("job", 2, 1).ok());
  cluster_.known.clear();
  Pass(5);
  EXPECT_EQ(Get("job").queue_reason(), "Slurm job 17 is not in the cluster's list");
  EXPECT_THAT(cluster_.asked, SizeIs(1));
  Pass(30);
  Pass(60);
  EXPECT_THAT(cluster_.asked, SizeIs(2));
  EXPECT_EQ(Get("job").restarts(), 1);
  // A cluster that accepts everything but lists nothing must not get endless requests.
  for (int i = 0; i < 100; ++i) {
    cluster_.known.clear();
    Pass(5);
  }
  EXPECT_THAT(cluster_.asked, SizeIs(2));
  EXPECT_EQ(State("job"), JOB_STATE_FAILED);
  EXPECT_THAT(Get("job").failure().message(), HasSubstr("the cluster does not know it"));
}

TEST_F(SubmissionsTest, AListThatIsEmptyForAWhileStopsNothing) {
  RunSubmitted("runs");
  ASSERT_TRUE(Submit("waits").ok());
  const auto listed = std::exchange(cluster_.known, {});
  for (int i = 0; i < 5; ++i) Pass(5);
  cluster_.known = listed;
  Pass(5);
  EXPECT_EQ(State("runs"), JOB_STATE_RUNNING);
  EXPECT_EQ(Get("waits").queue_reason(), "Slurm job 18 is PENDING: Priority");
  for (int i = 0; i < 5; ++i) Pass(5);
  EXPECT_THAT(cluster_.asked, SizeIs(2));
}

TEST_F(SubmissionsTest, AJobForAClusterThatIsNotSetUpIsRefusedOrWaits) {
  cluster_.here = false;
  const absl::Status refused = Submit("job");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("distributed.launcher is SLURM; accepted: LOCAL"));
  cluster_.here = true;
  ASSERT_TRUE(Submit("job").ok());
  ASSERT_TRUE(Pause("job").ok());
  Pass(5);
  Pass(5);
  cluster_.here = false;
  Open();
  ASSERT_TRUE(Resume("job").ok());
  Pass(0);
  EXPECT_THAT(Get("job").queue_reason(), HasSubstr("this daemon is not set up for SLURM"));
  EXPECT_THAT(Get("job").queue_reason(), Not(HasSubstr("Slurm job 17 is")));
}

TEST_F(SubmissionsTest, ACrowdIsPolledAtOnce) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Submit("job-" + std::to_string(i)).ok());
  cluster_.polls = 0;
  Pass(5);
  EXPECT_EQ(cluster_.polls, 1) << "one call tells of all";
}

}  // namespace
}  // namespace genesis
