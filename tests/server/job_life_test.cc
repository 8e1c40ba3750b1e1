// Tests of jobs from submission to end: pausing, priorities, fairness, restarts, hangs.
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/server/daemon_fixture.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using JobLifeTest = DaemonTest;

JobSpec SpecOfPriority(int priority) {
  JobSpec spec = MakeSpec();
  spec.mutable_scheduling()->set_priority(priority);
  return spec;
}

TEST_F(JobLifeTest, APausedJobKeepsItsPlaceInTrainingAndGivesItsSlot) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("ok-2").ok());
  ASSERT_TRUE(Pause("hold-1").ok());
  EXPECT_TRUE(Pause("hold-1").ok()) << "pausing again asks for nothing new";
  const Job paused = WatchUntilState("hold-1", JOB_STATE_PAUSED);
  EXPECT_EQ(paused.state_reason(), "paused by a user at step 5");
  EXPECT_FALSE(paused.has_worker());
  EXPECT_EQ(WatchToEnd("ok-2").state(), JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(Resume("hold-1").ok());
  const Job resumed = WatchUntilRunning("hold-1");
  EXPECT_EQ(resumed.state_reason(), "training, continued from step 5");
  EXPECT_EQ(resumed.restarts(), 0);
  EXPECT_TRUE(Resume("hold-1").ok()) << "it runs already";
}

TEST_F(JobLifeTest, AQueuedJobIsPausedAtOnceAndResumedIntoTheQueue) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("ok-2").ok());
  ASSERT_TRUE(Pause("ok-2").ok());
  EXPECT_EQ(Get("ok-2").state(), JOB_STATE_PAUSED);
  ASSERT_TRUE(Cancel("hold-1").ok());
  WatchToEnd("hold-1");
  EXPECT_EQ(Get("ok-2").state(), JOB_STATE_PAUSED);
  ASSERT_TRUE(Resume("ok-2").ok());
  EXPECT_EQ(WatchToEnd("ok-2").state(), JOB_STATE_SUCCEEDED);
}

TEST_F(JobLifeTest, ARequestIdNamesOneJob) {
  const auto train = [&](const char* id, const char* request_id) {
    grpc::ClientContext context;
    TrainRequest request;
    *request.mutable_spec() = MakeSpec();
    request.set_job_id(id);
    request.set_request_id(request_id);
    TrainResponse response;
    return stub_->Train(&context, request, &response);
  };
  ASSERT_TRUE(train("ok-a", "try-7").ok());
  EXPECT_TRUE(train("ok-a", "try-7").ok());
  EXPECT_TRUE(train("", "try-7").ok());
  const grpc::Status other = train("ok-b", "try-7");
  EXPECT_EQ(other.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(other.error_message(),
            "request_id \"try-7\" is that of job \"ok-a\", and job_id is \"ok-b\"; choose another "
            "request_id");
}

TEST_F(JobLifeTest, AJobWithTheIdOfADeletedOneDoesNotTakeItsCheckpoints) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  grpc::ClientContext context;
  DeleteJobRequest request;
  request.set_job_id("ok-1");
  DeleteJobResponse response;
  ASSERT_TRUE(stub_->DeleteJob(&context, request, &response).ok());
  const grpc::Status again = Train("ok-1");
  EXPECT_EQ(again.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(again.error_message(), HasSubstr("there are checkpoints of an earlier job \"ok-1\""));
  grpc::ClientContext of_checkpoint;
  DeleteCheckpointRequest forget;
  forget.set_checkpoint_id("ok-1-step-10");
  DeleteCheckpointResponse forgotten;
  ASSERT_TRUE(stub_->DeleteCheckpoint(&of_checkpoint, forget, &forgotten).ok());
  EXPECT_TRUE(Train("ok-1").ok());
  EXPECT_EQ(WatchToEnd("ok-1").state(), JOB_STATE_SUCCEEDED);
}

TEST_F(JobLifeTest, ResumingGoesThroughTheQueuesBoundToo) {
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.queue.max_jobs = 1;
  daemon_.reset();
  StartDaemon(std::move(loaded));
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("ok-2").ok());
  ASSERT_TRUE(Pause("ok-2").ok());
  ASSERT_TRUE(Train("ok-3").ok());
  const grpc::Status full = Resume("ok-2");
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << full.error_message();
  EXPECT_EQ(Get("ok-2").state(), JOB_STATE_PAUSED);
}

TEST_F(JobLifeTest, WishesThatComeTooLateSayWhy) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  const grpc::Status paused = Pause("ok-1");
  EXPECT_EQ(paused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(paused.error_message(),
            "job \"ok-1\" has ended as SUCCEEDED; only a job that has not ended can be paused");
  EXPECT_EQ(Resume("ok-1").error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  for (const grpc::Status& unknown : {Pause("nope"), Resume("nope"), CancelNow("nope")}) {
    EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(JobLifeTest, ACancelAtOnceWaitsForNoCheckpoint) {
  ASSERT_TRUE(Train("hang-1").ok());
  WatchUntil("hang-1", [](const Job& job) { return job.progress().step() == 5; });
  ASSERT_TRUE(CancelNow("hang-1").ok());
  const Job job = WatchToEnd("hang-1");
  EXPECT_EQ(job.state(), JOB_STATE_CANCELLED);
  EXPECT_FALSE(job.has_latest_checkpoint());
}

TEST_F(JobLifeTest, AHigherPriorityGoesFirstAndTakesTheSlotOfALowerOne) {
  ASSERT_TRUE(Train("hold-low", SpecOfPriority(-1)).ok());
  WatchUntilRunning("hold-low");
  ASSERT_TRUE(Train("ok-high", SpecOfPriority(5)).ok());
  EXPECT_EQ(WatchToEnd("ok-high").state(), JOB_STATE_SUCCEEDED);
  // The preempted job only lost its slot. No restart is counted.
  const Job low = Get("hold-low");
  EXPECT_EQ(low.restarts(), 0) << low.state_reason();
  EXPECT_EQ(low.latest_checkpoint().step(), 5);
  EXPECT_EQ(WatchUntilRunning("hold-low").claim(), 2);
}

TEST_F(JobLifeTest, AnEqualPriorityPreemptsNobody) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("ok-2").ok());
  ASSERT_TRUE(Train("ok-3").ok());
  EXPECT_EQ(Get("ok-3").queue_position(), 2);
  UpdateJobRequest request;
  request.set_job_id("ok-3");
  request.set_priority(-3);
  request.mutable_update_mask()->add_paths("priority");
  Job updated;
  ASSERT_TRUE(Update(request, &updated).ok());
  EXPECT_EQ(updated.priority(), -3);
  EXPECT_EQ(Get("hold-1").state(), JOB_STATE_RUNNING);
  EXPECT_EQ(Get("hold-1").claim(), 1);
}

TEST_F(JobLifeTest, AChangeOfPriorityMovesAJobInTheQueue) {
  ASSERT_TRUE(Train("hold-1", SpecOfPriority(50)).ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("ok-2").ok());
  ASSERT_TRUE(Train("ok-3").ok());
  UpdateJobRequest request;
  request.set_job_id("ok-3");
  request.set_priority(10);
  (*request.mutable_labels())["team"] = "robots";
  request.mutable_update_mask()->add_paths("priority");
  request.mutable_update_mask()->add_paths("labels");
  ASSERT_TRUE(Update(request).ok());
  EXPECT_EQ(Get("ok-3").queue_position(), 1);
  EXPECT_EQ(Get("ok-2").queue_position(), 2);
  EXPECT_EQ(Get("ok-3").labels().at("team"), "robots");
  EXPECT_TRUE(Train("ok-3").ok()) << "the specification is still the one that was submitted";
}

TEST_F(JobLifeTest, AnUpdateNamesEveryFault) {
  ASSERT_TRUE(Train("ok-1").ok());
  UpdateJobRequest request;
  request.set_job_id("ok-1");
  request.set_priority(1000);
  (*request.mutable_labels())["no spaces"] = "x";
  for (const char* path : {"priority", "labels", "spec"}) {
    request.mutable_update_mask()->add_paths(path);
  }
  const grpc::Status status = Update(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("priority is 1000; accepted: -100 to 100"));
  EXPECT_THAT(status.error_message(), HasSubstr("the key \"no spaces\" is not accepted"));
  EXPECT_THAT(status.error_message(),
              HasSubstr("update_mask is \"spec\"; accepted: priority, labels"));
}

TEST_F(JobLifeTest, OwnersTakeTurns) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  const auto submit = [&](const char* id, const char* owner) {
    JobSpec spec = MakeSpec();
    spec.mutable_scheduling()->set_owner(owner);
    ASSERT_TRUE(Train(id, spec).ok());
  };
  submit("ok-a1", "ann");
  submit("ok-a2", "ann");
  submit("ok-a3", "ann");
  submit("ok-b1", "bob");
  EXPECT_EQ(Get("ok-a1").queue_position(), 1);
  EXPECT_EQ(Get("ok-b1").queue_position(), 2);
  EXPECT_EQ(Get("ok-a2").queue_position(), 3);
  EXPECT_EQ(Get("hold-1").owner(), "anonymous");
}

TEST_F(JobLifeTest, ADeadlineEndsARunningJobWithACheckpointAndAWaitingOneAtOnce) {
  // Run a job first, so that a worker exists before the deadline starts.
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  JobSpec spec = MakeSpec();
  spec.mutable_scheduling()->set_deadline_seconds(3);
  ASSERT_TRUE(Train("hold-1", spec).ok());
  ASSERT_TRUE(Train("ok-2", spec).ok());
  const Job waited = WatchToEnd("ok-2");
  EXPECT_EQ(waited.state(), JOB_STATE_FAILED);
  EXPECT_EQ(waited.failure().cause(), FAILURE_CAUSE_DEADLINE);
  EXPECT_EQ(waited.claim(), 0);
  const Job ran = WatchToEnd("hold-1");
  EXPECT_EQ(ran.failure().cause(), FAILURE_CAUSE_DEADLINE);
  EXPECT_EQ(ran.failure().message(),
            "scheduling.deadline_seconds 3 passed since the job was accepted; stopped at step 5");
  EXPECT_EQ(ran.latest_checkpoint().step(), 5);
}

TEST_F(JobLifeTest, AJobDoesNotStartAfterItsDeadlineAlthoughASlotIsFree) {
  JobSpec spec = MakeSpec();
  spec.mutable_scheduling()->set_deadline_seconds(1e-6);
  // A warm worker exists for the second job at the latest.
  for (const char* id : {"ok-1", "ok-2", "ok-3"}) {
    ASSERT_TRUE(Train(id, spec).ok());
    const Job job = WatchToEnd(id);
    EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_DEADLINE) << id;
    EXPECT_EQ(job.claim(), 0) << id;
  }
}

TEST_F(JobLifeTest, AWorkerThatHangsIsEndedAndTheJobGoesOn) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.hang.step_seconds = 1;
  StartDaemon(std::move(loaded));
  ASSERT_TRUE(Train("hang-1").ok());
  const Job job = WatchToEnd("hang-1");
  EXPECT_EQ(job.state(), JOB_STATE_SUCCEEDED) << job.state_reason();
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_EQ(job.claim(), 2);
}

TEST_F(JobLifeTest, AJobThatHangsTooOftenFailsWithHang) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.hang.step_seconds = 1;
  StartDaemon(std::move(loaded));
  JobSpec spec = MakeSpec();
  spec.set_max_restarts(0);
  ASSERT_TRUE(Train("hang-1", spec).ok());
  const Job job = WatchToEnd("hang-1");
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_HANG);
  EXPECT_THAT(job.failure().message(),
              HasSubstr("no progress for 1s while making steps (hang.step_seconds)"));
}

TEST_F(JobLifeTest, OutOfMemoryIsTriedOnceWithHalfTheMicroBatchWhereTheJobAllowsIt) {
  ASSERT_TRUE(Train("oom-1").ok());
  EXPECT_EQ(WatchToEnd("oom-1").failure().cause(), FAILURE_CAUSE_OUT_OF_MEMORY);
  JobSpec spec = MakeSpec();
  spec.mutable_scheduling()->set_shrink_on_out_of_memory(true);
  ASSERT_TRUE(Train("oom-2", spec).ok());
  const Job job = WatchToEnd("oom-2");
  EXPECT_EQ(job.state(), JOB_STATE_SUCCEEDED) << job.state_reason();
  EXPECT_EQ(job.batch_halvings(), 1);
  EXPECT_EQ(job.restarts(), 0);
}

TEST_F(JobLifeTest, ADeviceThatKeepsFailingIsQuarantinedAndReadinessSaysSo) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.workers.quarantine_failures = 2;
  StartDaemon(std::move(loaded));
  ASSERT_TRUE(Train("device-1").ok());
  const Job job = WatchToEnd("device-1");
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_DEVICE);
  EXPECT_EQ(job.restarts(), 1) << "a device error poisons the process, not the job";
  const ListWorkersResponse response = Workers();
  ASSERT_EQ(response.devices_size(), 1);
  EXPECT_TRUE(response.devices(0).quarantined());
  EXPECT_THAT(response.devices(0).reason(),
              HasSubstr("2 device errors in a row; the newest: CUDA error"));
  grpc::ClientContext context;
  GetServerInfoResponse info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.ready());
  ASSERT_TRUE(Train("ok-waits").ok());
  EXPECT_EQ(Get("ok-waits").state(), JOB_STATE_QUEUED);
}

TEST_F(JobLifeTest, AQuarantineEndsByItself) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.workers.quarantine_failures = 1;
  loaded.settings.workers.quarantine_seconds = 1;
  StartDaemon(std::move(loaded));
  JobSpec spec = MakeSpec();
  spec.set_max_restarts(0);
  ASSERT_TRUE(Train("device-1", spec).ok());
  WatchToEnd("device-1");
  ASSERT_TRUE(Train("ok-2").ok());
  EXPECT_EQ(WatchToEnd("ok-2").state(), JOB_STATE_SUCCEEDED);
}

TEST_F(JobLifeTest, ADrainedWorkerGivesItsJobToAnother) {
  ASSERT_TRUE(Train("hold-1").ok());
  const Job running = WatchUntilRunning("hold-1");
  grpc::ClientContext context;
  DrainWorkerRequest request;
  request.set_worker_id(running.worker().worker_id());
  DrainWorkerResponse response;
  ASSERT_TRUE(stub_->DrainWorker(&context, request, &response).ok());
  EXPECT_TRUE(response.worker().draining());
  const Job moved = WatchUntil("hold-1", [&](const Job& job) {
    return job.state() == JOB_STATE_RUNNING && job.claim() == 2;
  });
  EXPECT_NE(moved.worker().worker_id(), running.worker().worker_id());
  EXPECT_EQ(moved.state_reason(), "training, continued from step 5");
  EXPECT_EQ(moved.restarts(), 0);
  grpc::ClientContext unknown;
  request.set_worker_id("w-nobody");
  EXPECT_EQ(stub_->DrainWorker(&unknown, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobLifeTest, AJobThatNeedsMoreMemoryThanIsFreeLetsASmallerOnePass) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.workers.slots = 2;
  StartDaemon(std::move(loaded));
  JobSpec large = MakeSpec();
  large.mutable_scheduling()->set_memory_bytes(int64_t{6} << 30);
  ASSERT_TRUE(Train("hold-1", large).ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("hold-2", large).ok());
  ASSERT_TRUE(Train("ok-3").ok());
  EXPECT_EQ(WatchToEnd("ok-3").state(), JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("hold-2").state(), JOB_STATE_QUEUED);
  ASSERT_TRUE(Cancel("hold-1").ok());
  EXPECT_EQ(WatchUntilRunning("hold-2").claim(), 1);
  JobSpec impossible = MakeSpec();
  impossible.mutable_scheduling()->set_memory_bytes(int64_t{9} << 30);
  const grpc::Status refused = Train("ok-4", impossible);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(
      refused.error_message(),
      "scheduling.memory_bytes is 9663676416; accepted: at most 8589934592, the memory of the "
      "largest device");
}

TEST_F(JobLifeTest, AJobOfMoreRanksThanSlotsIsRefused) {
  JobSpec spec = MakeSpec();
  spec.mutable_distributed()->set_ranks(1000);
  const grpc::Status refused = Train("ok-1", spec);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(
      refused.error_message(),
      MatchesRegex("distributed.ranks is 1000; accepted: 1 to [0-9]+, for each rank takes a "
                   "slot; raise workers.slots, or set workers.remote and start workers on "
                   "other hosts"));
}

TEST_F(JobLifeTest, TheSameRequestIdIsTheSameJob) {
  TrainRequest request;
  *request.mutable_spec() = MakeSpec();
  request.set_request_id("try-1");
  std::string id;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    TrainResponse response;
    ASSERT_TRUE(stub_->Train(&context, request, &response).ok());
    if (i == 0) id = response.job().id();
    EXPECT_EQ(response.job().id(), id);
  }
  request.mutable_spec()->mutable_training()->set_max_steps(11);
  grpc::ClientContext context;
  TrainResponse response;
  EXPECT_EQ(stub_->Train(&context, request, &response).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
}

}  // namespace
}  // namespace genesis
