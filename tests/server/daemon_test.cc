// Tests of a daemon with all its components in this process, real gRPC and HTTP, and real worker
// processes that run fake_worker instead of LibTorch.
#include <gmock/gmock.h>

#include "tests/server/daemon_fixture.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: the test uses many names of the API.

TEST_F(DaemonTest, AJobRunsToItsEndAndKeepsWhatTheWorkerReported) {
  ASSERT_TRUE(Train("ok-1").ok());
  const Job job = WatchToEnd("ok-1");
  EXPECT_EQ(job.state(), JOB_STATE_SUCCEEDED) << job.state_reason();
  EXPECT_EQ(job.state_reason(), "training complete");
  EXPECT_EQ(job.progress().step(), 10);
  EXPECT_EQ(job.latest_checkpoint().id(), "ok-1-step-10");
  EXPECT_EQ(job.precision().mode(), PRECISION_MODE_FP32);
  EXPECT_EQ(job.held_out().model(), 0.01);
  EXPECT_EQ(job.claim(), 1);
  EXPECT_TRUE(job.has_end_time());
}

TEST_F(DaemonTest, TheSameIdAndSpecificationIsTheSameJobAndAnotherSpecificationIsRefused) {
  ASSERT_TRUE(Train("ok-same").ok());
  EXPECT_TRUE(Train("ok-same").ok());
  EXPECT_EQ(trained_.job().id(), "ok-same");
  JobSpec other = MakeSpec();
  other.mutable_training()->set_max_steps(11);
  const grpc::Status status = Train("ok-same", other);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(status.error_message(),
            "job \"ok-same\" exists with another specification; choose another id");
}

TEST_F(DaemonTest, ValidateOnlyAcceptsNothing) {
  EXPECT_TRUE(Train("ok-check", MakeSpec(), /*validate_only=*/true).ok());
  grpc::ClientContext context;
  GetJobRequest request;
  request.set_job_id("ok-check");
  GetJobResponse response;
  EXPECT_EQ(stub_->GetJob(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(DaemonTest, ABadSpecificationNamesEveryFault) {
  JobSpec spec = MakeSpec();
  spec.mutable_training()->set_batch_size(-4);
  spec.mutable_optimizer()->set_learning_rate(-1);
  const grpc::Status status = Train("", spec);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "training.batch_size is -4"))
      << status.error_message();
  EXPECT_TRUE(absl::StrContains(status.error_message(), "optimizer.learning_rate is -1"));
}

TEST_F(DaemonTest, ADatasetThatIsMissingOrOutsideTheRootIsRefused) {
  JobSpec spec = MakeSpec();
  spec.mutable_dataset()->mutable_trajectories()->set_path("absent.npz");
  grpc::Status status = Train("", spec);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "there is no such file"))
      << status.error_message();
  // A link that leads out of the root is resolved before the path is checked.
  std::filesystem::create_symlink("/etc/hostname", temp_.path() + "/datasets/out.npz");
  spec.mutable_dataset()->mutable_trajectories()->set_path("out.npz");
  status = Train("", spec);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "a path beneath the dataset root"))
      << status.error_message();
}

TEST_F(DaemonTest, AJobWhoseDataIsBadFailsWithTheCauseAndIsNotRestarted) {
  ASSERT_TRUE(Train("fail-1").ok());
  const Job job = WatchToEnd("fail-1");
  EXPECT_EQ(job.state(), JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_DATA);
  EXPECT_EQ(job.state_reason(), "observations[3, 1] is nan");
  EXPECT_EQ(job.restarts(), 0);
}

TEST_F(DaemonTest, AWorkerThatCrashesOnceIsReplacedAndTheJobEnds) {
  ASSERT_TRUE(Train("crash-once-1").ok());
  const Job job = WatchToEnd("crash-once-1");
  EXPECT_EQ(job.state(), JOB_STATE_SUCCEEDED) << job.state_reason();
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_EQ(job.claim(), 2);
}

TEST_F(DaemonTest, AJobThatKeepsCrashingFailsWhenItsRestartsAreUsedUp) {
  ASSERT_TRUE(Train("crash-1").ok());
  const Job job = WatchToEnd("crash-1");
  EXPECT_EQ(job.state(), JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_SIGNAL);
  EXPECT_EQ(job.failure().signal(), SIGKILL);
  EXPECT_THAT(
      job.failure().message(),
      testing::MatchesRegex("the worker was ended by signal 9 .Killed., perhaps for want of "
                            "memory: it had used up to [0-9]+ MiB .see dmesg.; all 1 "
                            "restarts are used up"));
}

TEST_F(DaemonTest, ACheckpointIsDurableWhenTheCallReturns) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  CheckpointResponse response;
  const grpc::Status status = TakeCheckpoint("hold-1", &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(std::filesystem::exists(response.checkpoint().path()));
  EXPECT_EQ(Get("hold-1").latest_checkpoint().id(), response.checkpoint().id());
  EXPECT_TRUE(Cancel("hold-1").ok());
  EXPECT_EQ(WatchToEnd("hold-1").state(), JOB_STATE_CANCELLED);
}

TEST_F(DaemonTest, OnlyARunningJobCanBeCheckpointed) {
  ASSERT_TRUE(Train("ok-done").ok());
  WatchToEnd("ok-done");
  CheckpointResponse response;
  const grpc::Status status = TakeCheckpoint("ok-done", &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(),
            "job \"ok-done\" is SUCCEEDED; only a RUNNING job can be checkpointed");
}

TEST_F(DaemonTest, QueuedJobsWaitTheirTurnAndCanBeCancelledThere) {
  ASSERT_TRUE(Train("hold-first").ok());
  WatchUntilRunning("hold-first");
  ASSERT_TRUE(Train("ok-second").ok());
  ASSERT_TRUE(Train("ok-third").ok());
  EXPECT_EQ(Get("ok-second").queue_position(), 1);
  EXPECT_EQ(Get("ok-third").queue_position(), 2);
  EXPECT_TRUE(Cancel("ok-second").ok());
  EXPECT_EQ(Get("ok-second").state(), JOB_STATE_CANCELLED);
  EXPECT_EQ(Get("ok-third").queue_position(), 1);
  EXPECT_TRUE(Cancel("hold-first").ok());
  EXPECT_EQ(WatchToEnd("ok-third").state(), JOB_STATE_SUCCEEDED);
  const grpc::Status late = Cancel("ok-third");
  EXPECT_EQ(late.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(DaemonTest, AsManyJobsRunAtOnceAsThereAreSlots) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.workers.slots = 2;
  StartDaemon(std::move(loaded));
  for (const char* id : {"hold-1", "hold-2", "hold-3"}) ASSERT_TRUE(Train(id).ok());
  WatchUntilRunning("hold-1");
  WatchUntilRunning("hold-2");
  EXPECT_EQ(Get("hold-3").state(), JOB_STATE_QUEUED);
  EXPECT_TRUE(Cancel("hold-1").ok());
  WatchUntilRunning("hold-3");
  EXPECT_EQ(Get("hold-2").state(), JOB_STATE_RUNNING);
}

TEST_F(DaemonTest, AFullQueueRefusesWithTheLimit) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.queue.max_jobs = 1;
  StartDaemon(std::move(loaded));
  ASSERT_TRUE(Train("hold-first").ok());
  WatchUntilRunning("hold-first");
  ASSERT_TRUE(Train("ok-waits").ok());
  const grpc::Status status = Train("ok-refused");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(
      status.error_message(),
      "the queue is full: 1 jobs wait and queue.max_jobs is 1; try again when one has started");
}

TEST_F(DaemonTest, ADrainCheckpointsTheRunningJobAndTheNextStartContinuesIt) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  ASSERT_TRUE(Train("ok-waits").ok());
  EXPECT_TRUE(daemon_->Drain());
  daemon_.reset();
  StartDaemon(MakeSettings(temp_.path()));
  const Job job = WatchUntilRunning("hold-1");
  EXPECT_EQ(job.state_reason(), "training, continued from step 5");
  EXPECT_EQ(job.claim(), 2);
  EXPECT_EQ(job.restarts(), 0);
  EXPECT_TRUE(Cancel("hold-1").ok());
  EXPECT_EQ(WatchToEnd("ok-waits").state(), JOB_STATE_SUCCEEDED);
}

TEST_F(DaemonTest, AWatcherOfAnEndedJobGetsItOnceAndTheStreamEnds) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  grpc::ClientContext context;
  WatchJobRequest request;
  request.set_job_id("ok-1");
  auto reader = stub_->WatchJob(&context, request);
  WatchJobResponse update;
  EXPECT_TRUE(reader->Read(&update));
  EXPECT_FALSE(reader->Read(&update));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(DaemonTest, AnUnknownJobIsNotFoundEverywhere) {
  const std::string message = "there is no job \"nope\"; `genesisctl jobs` lists them";
  EXPECT_EQ(Cancel("nope").error_message(), message);
  CheckpointResponse response;
  EXPECT_EQ(TakeCheckpoint("nope", &response).error_message(), message);
  grpc::ClientContext context;
  WatchJobRequest request;
  request.set_job_id("nope");
  auto reader = stub_->WatchJob(&context, request);
  WatchJobResponse update;
  EXPECT_FALSE(reader->Read(&update));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(DaemonTest, ListsComeNewestFirstInPages) {
  for (const char* id : {"ok-1", "ok-2", "ok-3"}) {
    ASSERT_TRUE(Train(id).ok());
    WatchToEnd(id);
  }
  ListJobsRequest request;
  request.set_page_size(2);
  ListJobsResponse page;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->ListJobs(&first, request, &page).ok());
  ASSERT_EQ(page.jobs_size(), 2);
  EXPECT_EQ(page.jobs(0).id(), "ok-3");
  request.set_page_token(page.next_page_token());
  page.Clear();
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->ListJobs(&second, request, &page).ok());
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).id(), "ok-1");
  EXPECT_EQ(page.next_page_token(), "");
  grpc::ClientContext third;
  ListCheckpointsResponse checkpoints;
  ASSERT_TRUE(stub_->ListCheckpoints(&third, {}, &checkpoints).ok());
  EXPECT_EQ(checkpoints.checkpoints_size(), 3);
}

TEST_F(DaemonTest, StatsCountWhatTheWorkersReported) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  grpc::ClientContext context;
  StatsResponse stats;
  ASSERT_TRUE(stub_->Stats(&context, {}, &stats).ok());
  EXPECT_EQ(stats.training_steps(), 10);
  EXPECT_EQ(stats.samples(), 80);
  EXPECT_EQ(stats.jobs_by_state().at("SUCCEEDED"), 1);
  EXPECT_EQ(stats.jobs_by_state().at("RUNNING"), 0);
  EXPECT_FALSE(stats.fp16_enabled_runtime());
  EXPECT_EQ(stats.slots(), 1);
}

TEST_F(DaemonTest, ASecondDaemonOnTheSameFolderIsRefused) {
  Daemon second(MakeSettings(temp_.path()));
  const auto failure = second.Start();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::kDataDirInUse);
}

TEST_F(DaemonTest, APortInUseIsNamed) {
  TempDir other;
  LoadedSettings loaded = MakeSettings(other.path());
  loaded.settings.grpc.listen = daemon_->grpc_address();
  Daemon second(std::move(loaded));
  const auto failure = second.Start();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::kAddressInUse);
  EXPECT_EQ(failure->message,
            absl::StrCat("cannot listen on ", daemon_->grpc_address(),
                         ": Address already in use; stop what uses it, or choose another with "
                         "--grpc-listen"));
}

TEST_F(DaemonTest, AWorkerProgramThatCannotStartIsAReadinessReason) {
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.workers.program = "/nonexistent/genesis-worker";
  StartDaemon(std::move(loaded));
  GetServerInfoResponse info;
  do {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  } while (info.ready());
  SUCCEED();
}

TEST_F(DaemonTest, AStrangerCannotAttachAsAWorker) {
  auto stub = WorkerService::NewStub(grpc::CreateChannel(
      absl::StrCat("unix:", temp_.path(), "/run/worker.sock"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Attach(&context);
  AttachRequest hello;
  hello.mutable_hello()->set_worker_id("w-stranger");
  stream->Write(hello);
  AttachResponse command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

}  // namespace
}  // namespace genesis
