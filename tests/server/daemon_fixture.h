#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "genesis/training/v1/training_service.grpc.pb.h"
#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "server/daemon.h"
#include "server/ledger/job_state.h"
#include "tests/temp_dir.h"

// A fixture with a daemon and all its components in this process, real gRPC and HTTP, and real
// worker processes that run fake_worker instead of LibTorch.
namespace genesis {

using namespace training::v1;  // NOLINT: tests of the API use many of its names.

inline LoadedSettings MakeSettings(const std::string& dir) {
  LoadedSettings loaded;
  Settings& settings = loaded.settings;
  settings.data_dir = dir;
  settings.grpc.listen = "127.0.0.1:0";
  settings.http.listen = "127.0.0.1:0";
  settings.datasets.root = dir + "/datasets";
  settings.checkpoints.dir = dir + "/checkpoints";
  settings.log.file = dir + "/log/orchestrator.log";
  settings.log.level = "debug";
  settings.deployment = "stable";
  settings.workers.program = GENESIS_FAKE_WORKER;
  settings.gate = {false, "disabled by ENABLE_FP16_TRAINING (unset)", {}};
  return loaded;
}

inline JobSpec MakeSpec() {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_trajectories()->set_path("data.npz");
  spec.mutable_training()->set_max_steps(10);
  spec.set_max_restarts(1);
  return spec;
}

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() {
    temp_.Write("datasets/data.npz", "npz");
    StartDaemon(MakeSettings(temp_.path()));
  }

  void StartDaemon(LoadedSettings loaded) {
    daemon_ = std::make_unique<Daemon>(std::move(loaded));
    const auto failure = daemon_->Start();
    ASSERT_FALSE(failure) << failure->message;
    stub_ = TrainingService::NewStub(
        grpc::CreateChannel(daemon_->grpc_address(), grpc::InsecureChannelCredentials()));
  }

  grpc::Status Train(const std::string& id, const JobSpec& spec = MakeSpec(),
                     bool validate_only = false) {
    grpc::ClientContext context;
    TrainRequest request;
    *request.mutable_spec() = spec;
    request.set_job_id(id);
    request.set_validate_only(validate_only);
    return stub_->Train(&context, request, &trained_);
  }

  Job Get(const std::string& id) {
    grpc::ClientContext context;
    GetJobRequest request;
    request.set_job_id(id);
    GetJobResponse response;
    const grpc::Status status = stub_->GetJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }

  grpc::Status Cancel(const std::string& id, bool now = false) {
    grpc::ClientContext context;
    CancelJobRequest request;
    request.set_job_id(id);
    request.set_now(now);
    CancelJobResponse response;
    return stub_->CancelJob(&context, request, &response);
  }
  grpc::Status CancelNow(const std::string& id) { return Cancel(id, /*now=*/true); }
  grpc::Status Pause(const std::string& id) {
    grpc::ClientContext context;
    PauseJobRequest request;
    request.set_job_id(id);
    PauseJobResponse response;
    return stub_->PauseJob(&context, request, &response);
  }
  grpc::Status Resume(const std::string& id) {
    grpc::ClientContext context;
    ResumeJobRequest request;
    request.set_job_id(id);
    ResumeJobResponse response;
    return stub_->ResumeJob(&context, request, &response);
  }
  grpc::Status Update(const UpdateJobRequest& request, Job* job = nullptr) {
    grpc::ClientContext context;
    UpdateJobResponse response;
    const grpc::Status status = stub_->UpdateJob(&context, request, &response);
    if (job != nullptr) *job = response.job();
    return status;
  }
  ListWorkersResponse Workers() {
    grpc::ClientContext context;
    ListWorkersResponse response;
    EXPECT_TRUE(stub_->ListWorkers(&context, {}, &response).ok());
    return response;
  }

  grpc::Status TakeCheckpoint(const std::string& id, CheckpointResponse* response) {
    grpc::ClientContext context;
    CheckpointRequest request;
    request.set_job_id(id);
    return stub_->Checkpoint(&context, request, response);
  }

  // Watches the job through WatchJob until `done`. Returns the last state received.
  template <typename Predicate>
  Job WatchUntil(const std::string& id, Predicate done) {
    grpc::ClientContext context;
    WatchJobRequest request;
    request.set_job_id(id);
    auto reader = stub_->WatchJob(&context, request);
    WatchJobResponse update;
    while (reader->Read(&update)) {
      if (done(update.job())) break;
    }
    context.TryCancel();
    reader->Finish();
    return update.job();
  }
  Job WatchToEnd(const std::string& id) {
    return WatchUntil(id, [](const Job& job) { return IsFinal(job.state()); });
  }
  Job WatchUntilState(const std::string& id, JobState state) {
    return WatchUntil(id, [state](const Job& job) { return job.state() == state; });
  }
  Job WatchUntilRunning(const std::string& id) { return WatchUntilState(id, JOB_STATE_RUNNING); }

  TempDir temp_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<TrainingService::Stub> stub_;
  TrainResponse trained_;
};

}  // namespace genesis
