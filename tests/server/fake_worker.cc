// A worker without LibTorch for tests of the daemon. It uses WorkerService.Attach, and the ID of
// its job selects its behavior:
//   ok-*          trains 10 steps, checkpoints, completes
//   hold-*        trains 5 steps, then waits until it is stopped; checkpoints on request
//   crash-*       ends by SIGKILL after 5 steps
//   crash-once-*  same, on the first claim only
//   fail-*        reports bad data
//   oom-*         reports out of memory as long as the micro-batch is that of the specification
//   device-*      reports a device error
//   hang-*        trains 5 steps, then does nothing and ignores SIGTERM; on the first claim only
//   survive-*     as hold-*, but continues and dials again if it loses the daemon
//   lose-*        as hold-*, but ends by SIGKILL on a checkpoint request
//   stop-lose-*   as hold-*, but ends by SIGKILL on a stop, and takes no checkpoint
//   garble-*      reports bad data in bytes that are not UTF-8, dials again and reports the same
//   flap-*        trains 5 steps, then closes its stream and dials again, over and over
//   shout-*       reports bad data in a megabyte of lines
//   splutter-*    as crash-*, but first writes bytes that are not UTF-8 to its output
//   flood-*       as hold-*, but fills its output
//   foreign-*     reports a checkpoint of job ok-other and its removal, and one outside its folder
// With --verify FILE it verifies a file instead, and with --predict it refuses to predict.
// If it resumes, it first reports the step of its checkpoint.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/memory_socket.h"
#include "genesis/training/v1/worker_service.grpc.pb.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: the worker uses many names of the protocol.

class FakeWorker {
 public:
  FakeWorker(const std::string& address, std::string id) : address_(address), id_(std::move(id)) {
    Connect();
  }

  int Run() {
    if (!stream_->Write(Hello())) return 1;
    AttachResponse command;
    if (!stream_->Read(&command)) return 0;
    start_ = command.start_job();
    prctl(PR_SET_PDEATHSIG, 0);  // The worker may now outlive its daemon.
    Act();
    stream_->WritesDone();
    // Finish would wait forever while a command has not been read.
    while (stream_->Read(&command)) {
    }
    stream_->Finish();
    return 0;
  }

 private:
  // Batch size of the specification that tests submit.
  static constexpr int kFullBatch = 128;
  static constexpr int64_t kMemory = int64_t{8} << 30;

  void Connect() {
    context_ = std::make_unique<grpc::ClientContext>();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = WorkerService::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
    stream_ = stub_->Attach(context_.get());
  }

  AttachRequest Hello() const {
    AttachRequest hello;
    hello.mutable_hello()->set_worker_id(id_);
    hello.mutable_hello()->set_pid(getpid());
    hello.mutable_hello()->mutable_device()->set_name("cpu");
    hello.mutable_hello()->mutable_device()->set_memory_bytes(kMemory);
    return hello;
  }

  AttachRequest Event() const {
    AttachRequest event;
    event.set_job_id(start_.job_id());
    event.set_claim(start_.claim());
    return event;
  }

  bool Is(const char* kind) const { return absl::StartsWith(start_.job_id(), kind); }

  void Act() {
    if (Is("garble-")) return Garble();
    if (Is("shout-")) return Fail(FAILURE_CAUSE_DATA, Shout());
    if (Is("fail-")) return Fail(FAILURE_CAUSE_DATA, "observations[3, 1] is nan");
    if (Is("device-")) return Fail(FAILURE_CAUSE_DEVICE, "CUDA error: an illegal memory access");
    if (Is("oom-") && start_.spec().training().batch_size() == kFullBatch) {
      return Fail(FAILURE_CAUSE_OUT_OF_MEMORY, "CUDA out of memory");
    }
    AttachRequest started = Event();
    step_ = ResumedStep();
    started.mutable_started()->set_total_steps(10);
    started.mutable_started()->set_resumed_step(step_);
    stream_->Write(started);
    Train(5);
    if (Is("crash-once-") ? start_.claim() == 1 : Is("crash-")) kill(getpid(), SIGKILL);
    if (Is("splutter-")) {
      std::cerr << "Traceback \xff\xfe of a module\x1b[2J" << std::endl;
      kill(getpid(), SIGKILL);
    }
    if (Is("flap-")) return Flap();
    if (Is("foreign-")) ReportForeign();
    if (Is("flood-")) Flood();
    if (Is("hang-") && start_.claim() == 1) Hang();
    if (Is("hold-") || Is("survive-") || Is("lose-") || Is("stop-lose-") || Is("flood-")) {
      return Hold();
    }
    Train(5);
    WriteCheckpoint();
    Finish(Finished::OUTCOME_COMPLETED);
  }

  void Hold() {
    do {
      for (AttachResponse command; stream_->Read(&command);) {
        if (command.has_take_checkpoint() && Is("lose-")) kill(getpid(), SIGKILL);
        if (command.has_stop_job() && Is("stop-lose-")) kill(getpid(), SIGKILL);
        if (Is("stop-lose-")) continue;
        if (command.has_take_checkpoint() || command.stop_job().checkpoint()) WriteCheckpoint();
        if (command.has_stop_job()) return Finish(Finished::OUTCOME_STOPPED);
      }
    } while (Is("survive-") && DialAgain());
  }

  bool DialAgain(int steps = 1) {
    for (;;) {
      const grpc::Status status = stream_->Finish();
      if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) return false;
      usleep(20'000);
      Connect();
      AttachRequest hello = Hello();
      hello.set_job_id(start_.job_id());
      hello.set_claim(start_.claim());
      AttachResponse first;
      if (!stream_->Write(hello) || !stream_->Read(&first)) continue;
      if (steps > 0) Train(steps);  // Steps done while disconnected.
      return true;
    }
  }

  // Sends the same report on every stream, like a worker without error handling.
  void Garble() {
    do {
      Fail(FAILURE_CAUSE_DATA, "the label \xc3\x28 of row 7");
      for (AttachResponse command; stream_->Read(&command);) {
      }
    } while (DialAgain(/*steps=*/0));
  }

  static std::string Shout() {
    std::string text = "the first line";
    while (text.size() < (size_t{1} << 20U)) text += "\n2026-01-01T00:00:00 error forged";
    return text + "\nthe last line";
  }

  void Flap() {
    do {
      stream_->WritesDone();
      for (AttachResponse command; stream_->Read(&command);) {
      }
    } while (DialAgain(/*steps=*/0));
  }

  static void Flood() {
    const std::string line(size_t{1} << 16U, 'x');
    for (int i = 0; i < 1024; ++i) std::cout << line << std::endl;
  }

  void ReportForeign() {
    for (const char* id : {"ok-other-step-10", "foreign-1-step-10-x"}) {
      AttachRequest event = Event();
      Checkpoint* checkpoint = event.mutable_checkpoint_written()->mutable_checkpoint();
      checkpoint->set_id(id);
      checkpoint->set_job_id(absl::StartsWith(id, "ok-") ? "ok-other" : start_.job_id());
      checkpoint->set_path(absl::StrCat(start_.checkpoint_dir(), "/../", id));
      stream_->Write(event);
    }
    step_ = 5;
    AttachRequest event = Event();
    FillCheckpoint(*event.mutable_checkpoint_written()->mutable_checkpoint());
    event.mutable_checkpoint_written()->add_removed_ids("ok-other-step-10");
    stream_->Write(event);
  }

  [[noreturn]] static void Hang() {
    signal(SIGTERM, SIG_IGN);
    for (;;) pause();
  }

  void Fail(FailureCause cause, const std::string& message) {
    failure_.set_cause(cause);
    failure_.set_message(message);
    failure_.set_exit_code(-1);
    Finish(Finished::OUTCOME_FAILED);
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

  // Returns the step in the name of the newest checkpoint that has one; users' names do not.
  int64_t ResumedStep() const {
    for (const std::string& path : start_.resume_from()) {
      const size_t at = path.rfind("-step-");
      if (at != std::string::npos) return std::stoll(path.substr(at + 6));
    }
    return 0;
  }

  void FillCheckpoint(Checkpoint& checkpoint) const {
    checkpoint.set_id(absl::StrCat(start_.job_id(), "-step-", step_));
    checkpoint.set_job_id(start_.job_id());
    checkpoint.set_step(step_);
    checkpoint.set_path(absl::StrCat(start_.checkpoint_dir(), "/", checkpoint.id()));
    std::ofstream(checkpoint.path()) << "state";
    checkpoint.set_size_bytes(5);
  }

  void WriteCheckpoint() {
    AttachRequest event = Event();
    FillCheckpoint(*event.mutable_checkpoint_written()->mutable_checkpoint());
    event.mutable_checkpoint_written()->set_seconds(0.01);
    stream_->Write(event);
  }

  void Finish(Finished::Outcome outcome) {
    AttachRequest event = Event();
    Finished* finished = event.mutable_finished();
    finished->set_outcome(outcome);
    *finished->mutable_progress() = MakeProgress();
    if (outcome == Finished::OUTCOME_COMPLETED) finished->mutable_held_out()->set_model(0.01);
    if (outcome == Finished::OUTCOME_FAILED) *finished->mutable_failure() = failure_;
    stream_->Write(event);
  }

  const std::string address_;
  const std::string id_;
  // Declared in the order of their dependencies.
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<AttachRequest, AttachResponse>> stream_;
  StartJob start_;
  Failure failure_;
  int64_t step_ = 0;
};

// Acts like genesis-worker --verify: a valid checkpoint begins with "state", and one with "crash"
// crashes the reader.
int Verify(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  if (word == "crash") kill(getpid(), SIGKILL);
  if (word == "state") return 0;
  std::cerr << path << ": is no zip file\n";
  return 1;
}

// Acts like genesis-worker --predict with weights that it cannot load.
int Predict() {
  MemorySocket socket(STDIN_FILENO, absl::InfiniteDuration());
  PredictorResponse response;
  response.set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  response.set_message("a fake worker has no model");
  while (socket.Receive().ok() && socket.Send(response.SerializeAsString()).ok()) {
  }
  return 0;
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--verify") return genesis::Verify(argv[2]);
  if (argc > 1 && std::string(argv[1]) == "--predict") return genesis::Predict();
  if (argc != 9 || std::string(argv[1]) != "--daemon" || std::string(argv[3]) != "--worker-id") {
    std::cerr << "usage: fake_worker --daemon ADDRESS --worker-id ID --threads N --device NAME\n";
    return 2;
  }
  return genesis::FakeWorker(argv[2], argv[4]).Run();
}
