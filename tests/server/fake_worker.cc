// A worker without LibTorch for tests of the daemon: speaks WorkerService.Attach and does what the
// id of its job says:
//   ok-*          trains 10 steps, checkpoints, completes
//   hold-*        trains until it is told to stop; checkpoints on request
//   crash-*       ends by SIGKILL after 5 steps
//   crash-once-*  the same, on the first claim only
//   fail-*        reports bad data
// A start that resumes reports the step of its checkpoint.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "genesis/training/v1/worker_service.grpc.pb.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: every name here is of the wire.

class FakeWorker {
 public:
  FakeWorker(const std::string& address, std::string id)
      : stub_(WorkerService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Attach(&context_)),
        id_(std::move(id)) {}

  int Run() {
    AttachRequest hello;
    hello.mutable_hello()->set_worker_id(id_);
    hello.mutable_hello()->set_pid(getpid());
    hello.mutable_hello()->mutable_device()->set_name("cpu");
    if (!stream_->Write(hello)) return 1;
    AttachResponse command;
    if (!stream_->Read(&command)) return 0;
    start_ = command.start_job();
    Act();
    stream_->WritesDone();
    stream_->Finish();
    return 0;
  }

 private:
  AttachRequest Event() const {
    AttachRequest event;
    event.set_job_id(start_.job_id());
    event.set_claim(start_.claim());
    return event;
  }

  bool Is(const char* kind) const { return absl::StartsWith(start_.job_id(), kind); }

  void Act() {
    if (Is("fail-")) return Finish(Finished::OUTCOME_FAILED);
    AttachRequest started = Event();
    step_ = start_.resume_from().empty() ? 0 : StepOf(start_.resume_from(0));
    started.mutable_started()->set_total_steps(10);
    started.mutable_started()->set_resumed_step(step_);
    stream_->Write(started);
    Train(5);
    if (Is("crash-once-") ? start_.claim() == 1 : Is("crash-")) kill(getpid(), SIGKILL);
    if (Is("hold-")) return Hold();
    Train(5);
    WriteCheckpoint();
    Finish(Finished::OUTCOME_COMPLETED);
  }

  void Hold() {
    AttachResponse command;
    while (stream_->Read(&command)) {
      if (command.has_take_checkpoint() || command.stop_job().checkpoint()) WriteCheckpoint();
      if (command.has_stop_job()) return Finish(Finished::OUTCOME_STOPPED);
    }
  }

  void Train(int steps) {
    step_ += steps;
    AttachRequest event = Event();
    *event.mutable_steps()->mutable_progress() = MakeProgress();
    event.mutable_steps()->set_new_steps(steps);
    event.mutable_steps()->set_new_samples(steps * 8);
    for (int i = 0; i < steps; ++i) event.mutable_steps()->add_step_seconds(0.001F);
    stream_->Write(event);
  }

  Progress MakeProgress() const {
    Progress progress;
    progress.set_step(step_);
    progress.set_total_steps(10);
    progress.set_loss(1.0 / static_cast<double>(step_ + 1));
    progress.set_loss_scale(1);
    progress.set_samples(step_ * 8);
    return progress;
  }

  static int64_t StepOf(const std::string& path) {
    return std::stoll(path.substr(path.rfind('-') + 1));
  }

  void WriteCheckpoint() {
    AttachRequest event = Event();
    Checkpoint* checkpoint = event.mutable_checkpoint_written()->mutable_checkpoint();
    checkpoint->set_id(absl::StrCat(start_.job_id(), "-step-", step_));
    checkpoint->set_job_id(start_.job_id());
    checkpoint->set_step(step_);
    checkpoint->set_path(absl::StrCat(start_.checkpoint_dir(), "/", checkpoint->id()));
    std::ofstream(checkpoint->path()) << "state";
    checkpoint->set_size_bytes(5);
    event.mutable_checkpoint_written()->set_seconds(0.01);
    stream_->Write(event);
  }

  void Finish(Finished::Outcome outcome) {
    AttachRequest event = Event();
    Finished* finished = event.mutable_finished();
    finished->set_outcome(outcome);
    *finished->mutable_progress() = MakeProgress();
    if (outcome == Finished::OUTCOME_COMPLETED) finished->mutable_held_out()->set_model(0.01);
    if (outcome == Finished::OUTCOME_FAILED) {
      finished->mutable_failure()->set_cause(FAILURE_CAUSE_DATA);
      finished->mutable_failure()->set_message("observations[3, 1] is nan");
      finished->mutable_failure()->set_exit_code(-1);
    }
    stream_->Write(event);
  }

  grpc::ClientContext context_;
  std::unique_ptr<WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<AttachRequest, AttachResponse>> stream_;
  std::string id_;
  StartJob start_;
  int64_t step_ = 0;
};

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  if (argc != 7 || std::string(argv[1]) != "--daemon" || std::string(argv[3]) != "--worker-id") {
    std::cerr << "usage: fake_worker --daemon ADDRESS --worker-id ID --threads N\n";
    return 2;
  }
  return genesis::FakeWorker(argv[2], argv[4]).Run();
}
