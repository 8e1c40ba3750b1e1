// The rules of jobs against a clock and workers that the test holds: no process, no waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <set>
#include <utility>

#include "absl/synchronization/notification.h"
#include "config/job/job_names.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: state names.
using testing::HasSubstr;

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(wall_); }
  absl::Time Steady() const override { return absl::FromUnixSeconds(steady_); }
  void Advance(int seconds) {
    wall_ += seconds;
    steady_ += seconds;
  }
  // As an operator sets it; no time passes.
  void SetBack(int seconds) { wall_ -= seconds; }

 private:
  std::atomic<int64_t> wall_{1'800'000'000};
  std::atomic<int64_t> steady_{1'800'000'000};
};

// Workers that do nothing by themselves. Read by the test while the writer rests.
class IdleWorkers final : public Workers {
 public:
  bool Adopt(const WorkerProcessRef&, const std::string&, int64_t, int64_t, int64_t) override {
    return adopts;
  }
  std::optional<WorkerLease> Reserve(int64_t memory_bytes) override {
    if (static_cast<int>(begun.size()) >= free || memory_bytes > 1000) return std::nullopt;
    WorkerLease lease;
    lease.worker.set_worker_id("w" + std::to_string(++last_));
    lease.device.set_name("cpu");
    return lease;
  }
  void Release(const std::string&) override {}
  void Begin(const std::string&, const StartJob& start) override { begun[start.job_id()] = start; }
  void Send(const std::string& job_id, const AttachResponse& command) override {
    sent.emplace_back(job_id, command);
  }
  void Acknowledge(const std::string&, int64_t) override {}
  void ExpectExit(const std::string& job_id, absl::Duration grace, const std::string&) override {
    expected_exits[job_id] = grace;
  }
  absl::StatusOr<std::string> Retire(const std::string&) override { return ""; }
  WorkerCounts counts() const override { return {.busy = static_cast<int>(begun.size())}; }
  int slots() const override { return free; }
  std::vector<WorkerInfo> workers() const override { return {}; }
  int64_t largest_device_bytes() const override { return 0; }

  int free = 1;
  bool adopts = false;
  std::map<std::string, StartJob> begun;  // By job that is on a worker.
  std::vector<std::pair<std::string, AttachResponse>> sent;
  std::map<std::string, absl::Duration> expected_exits;

 private:
  int last_ = 0;
};

class JobRulesTest : public testing::Test {
 protected:
  JobRulesTest() { Open(); }

  void Open() {
    manager_.reset();
    store_.reset();
    store_ = *JobStore::Open(temp_.path());
    JobManager::Options options;
    options.checkpoints_dir = temp_.path();
    options.gate.enabled = true;
    manager_ = std::make_unique<JobManager>(options, store_.get(), &workers_, &metrics_, clock_);
    ASSERT_TRUE(manager_->Recover().ok());
    manager_->Start();
    Settle();
  }

  // Waits until the writer has done what it was asked for, and what followed from it.
  void Settle() {
    for (int i = 0; i < 4; ++i) {
      absl::Notification done;
      manager_->AskWriter([&] { done.Notify(); });
      done.WaitForNotification();
    }
  }
  void Tick() {
    manager_->AskWriter([this] { manager_->OnTime(); });
    Settle();
  }

  template <typename T>
  absl::StatusOr<T> Await(const std::function<void(const Callback<T>&)>& call) {
    absl::Notification done;
    absl::StatusOr<T> result;
    call([&](const absl::StatusOr<T>& answer) {
      result = answer;
      done.Notify();
    });
    done.WaitForNotification();
    Settle();
    Note();
    return result;
  }

  absl::Status Train(const std::string& id, int priority = 0, double deadline = 0) {
    TrainRequest request;
    request.set_job_id(id);
    JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->mutable_world_model();
    spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories()->set_episodes(4);
    spec.mutable_training()->set_epochs(1);
    spec.mutable_scheduling()->set_priority(priority);
    spec.mutable_scheduling()->set_deadline_seconds(deadline);
    spec.set_max_restarts(1);
    ids_.insert(id);
    return Await<Job>(
               [&](const auto& callback) { manager_->admission().Train(request, {}, callback); })
        .status();
  }
  absl::Status Pause(const std::string& id) {
    return Await<Job>([&](const auto& callback) { manager_->requests().Pause(id, callback); })
        .status();
  }
  absl::Status Resume(const std::string& id) {
    return Await<Job>([&](const auto& callback) { manager_->requests().Resume(id, callback); })
        .status();
  }
  absl::Status Cancel(const std::string& id) {
    return Await<Job>(
               [&](const auto& callback) { manager_->requests().Cancel(id, false, callback); })
        .status();
  }

  Job Get(const std::string& id) { return *manager_->queries().Get(id); }
  JobState State(const std::string& id) { return Get(id).state(); }

  AttachRequest Event(const std::string& id) {
    AttachRequest event;
    event.set_job_id(id);
    event.set_claim(Get(id).claim());
    return event;
  }
  void Report(const AttachRequest& event) {
    manager_->worker_events()->OnWorkerEvent(event);
    Settle();
    Note();
  }
  void Started(const std::string& id) {
    AttachRequest event = Event(id);
    event.mutable_started()->set_total_steps(100);
    Report(event);
  }
  void Run(const std::string& id) {
    ASSERT_TRUE(Train(id).ok());
    Started(id);
    ASSERT_EQ(State(id), JOB_STATE_RUNNING);
  }
  void Finish(const std::string& id, Finished::Outcome outcome,
              FailureCause cause = FAILURE_CAUSE_CONFIG) {
    AttachRequest event = Event(id);
    event.mutable_finished()->set_outcome(outcome);
    if (outcome == Finished::OUTCOME_FAILED) {
      event.mutable_finished()->mutable_failure()->set_cause(cause);
      event.mutable_finished()->mutable_failure()->set_message("it cannot go on");
    }
    workers_.begun.erase(id);
    Report(event);
    // Its worker exits, which frees a slot.
    manager_->worker_events()->OnCapacity();
    Settle();
  }
  void Lose(const std::string& id, int signal = SIGKILL) {
    WorkerExit exit;
    exit.job_id = id;
    exit.claim = Get(id).claim();
    exit.exit.known = true;
    exit.exit.signal = signal;
    workers_.begun.erase(id);
    manager_->worker_events()->OnWorkerGone(exit);
    Settle();
    Note();
  }
  // The moves that the jobs' events tell.
  void Note() {
    for (const std::string& id : ids_) {
      const auto events = manager_->view().EventsAfter(id, 0, 1000);
      ASSERT_TRUE(events.ok()) << events.status();
      for (const JobEvent& event : *events) {
        const StateChange& change = event.state_changed();
        if (change.from() != JOB_STATE_UNSPECIFIED) moves_.emplace(change.from(), change.to());
      }
    }
  }

  TempDir temp_;
  ManualClock clock_;
  IdleWorkers workers_;
  Metrics metrics_{"stable", "test"};
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobManager> manager_;
  std::set<std::string> ids_;
  std::set<std::pair<JobState, JobState>> moves_;
};

// Each move of the table is made as it is in life, by what a user asks, a worker reports or time
// brings.
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
        << JobStateName(move.from) << " to " << JobStateName(move.to);
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
  manager_->checkpoints().Take("job", [&](const absl::StatusOr<Checkpoint>& result) {
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
