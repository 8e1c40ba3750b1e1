#include "trainer/run/daemon_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "config/exit_code.h"
#include "config/version.h"
#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "trainer/run/event_sender.h"
#include "trainer/run/termination.h"
#include "trainer/run/training_run.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;
using training::v1::StartJob;
using training::v1::WorkerService;

using Stream = grpc::ClientReaderWriter<AttachRequest, AttachResponse>;

// How long the daemon may take to close the stream after the end of the job.
constexpr std::chrono::seconds kCloseWait{10};
// Failure.log_tail holds at most this many.
constexpr size_t kLogTailLines = 50;

AttachRequest Hello(const std::string& worker_id, const training::v1::DeviceInfo& device) {
  AttachRequest request;
  request.mutable_hello()->set_worker_id(worker_id);
  request.mutable_hello()->set_pid(getpid());
  request.mutable_hello()->set_version(kVersion);
  *request.mutable_hello()->mutable_device() = device;
  return request;
}

// Turns what a run tells into events of its job and claim.
class ReportingObserver : public RunObserver {
 public:
  ReportingObserver(const StartJob& start, EventSender& sender) : start_(start), sender_(sender) {}

  void OnStarted(const training::v1::Started& started) override {
    Send([&](AttachRequest& event) { *event.mutable_started() = started; });
  }
  void OnSteps(const training::v1::Steps& steps) override {
    Send([&](AttachRequest& event) { *event.mutable_steps() = steps; });
  }
  void OnCheckpoint(const training::v1::CheckpointWritten& written) override {
    Send([&](AttachRequest& event) { *event.mutable_checkpoint_written() = written; });
  }
  void OnPrecisionChanged(const training::v1::PrecisionChange& change) override {
    Send([&](AttachRequest& event) { *event.mutable_precision_changed() = change; });
  }
  void OnIncident(const training::v1::Incident& incident) override {
    Send([&](AttachRequest& event) { *event.mutable_incident() = incident; });
  }
  void OnEvaluated(const training::v1::Evaluation& evaluation) override {
    Send([&](AttachRequest& event) { *event.mutable_evaluated() = evaluation; });
  }
  void OnLog(const std::string& line) override {
    std::cerr << line << std::endl;
    log_tail_.push_back(line);
    if (log_tail_.size() > kLogTailLines) log_tail_.pop_front();
    Send([&](AttachRequest& event) { event.mutable_log_line()->set_text(line); });
  }
  // A failure takes the last log lines along, for whoever asks why.
  void OnFinished(training::v1::Finished finished) {
    if (finished.has_failure()) {
      for (const std::string& line : log_tail_) finished.mutable_failure()->add_log_tail(line);
    }
    Send([&](AttachRequest& event) { *event.mutable_finished() = finished; });
  }

 private:
  template <typename Fill>
  void Send(Fill fill) {
    AttachRequest event;
    event.set_job_id(start_.job_id());
    event.set_claim(start_.claim());
    fill(event);
    sender_.Enqueue(std::move(event));
  }

  const StartJob& start_;
  EventSender& sender_;
  std::deque<std::string> log_tail_;
};

// The worker's half of one Attach stream: a thread reads commands, the sender writes events, the
// calling thread trains.
class Attachment {
 public:
  explicit Attachment(const std::string& address)
      : stub_(WorkerService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Attach(&context_)) {}

  int Serve(const std::string& worker_id, const training::v1::DeviceInfo& device) {
    if (!stream_->Write(Hello(worker_id, device))) {
      const grpc::Status status = stream_->Finish();
      std::cerr << "the daemon cannot be reached: " << status.error_message() << std::endl;
      return ToInt(ExitCode::kFailure);
    }
    std::thread reader([this] { ReadCommands(); });
    const TerminationWatch watch([this] { OnSignal(); });
    const std::optional<StartJob> start = WaitForJob();
    const bool good = start ? RunJob(*start, device) : true;
    Close();
    reader.join();
    const grpc::Status status = stream_->Finish();
    if (!good) std::cerr << "the daemon's stream broke: " << status.error_message() << std::endl;
    return ToInt(good ? ExitCode::kOk : ExitCode::kFailure);
  }

 private:
  void ReadCommands() {
    for (AttachResponse command; stream_->Read(&command);) {
      switch (command.command_case()) {
        case AttachResponse::kStartJob: {
          const std::lock_guard lock(mutex_);
          // A worker serves one job; another one can only be the daemon's mistake.
          if (!start_) start_ = std::move(*command.mutable_start_job());
          break;
        }
        case AttachResponse::kTakeCheckpoint:
          control_.RequestCheckpoint();
          break;
        case AttachResponse::kStopJob:
          control_.RequestStop(command.stop_job().checkpoint());
          break;
        case AttachResponse::COMMAND_NOT_SET:
          break;
      }
      changed_.notify_all();
    }
    OnStreamEnd();
  }

  // Nobody hears the job any more.
  void OnStreamEnd() {
    control_.RequestStop(/*checkpoint=*/false);
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (!closing_) broken_ = true;
    changed_.notify_all();
  }

  void OnSignal() {
    control_.RequestStop(/*checkpoint=*/true);
    const std::lock_guard lock(mutex_);
    terminating_ = true;
    changed_.notify_all();
  }

  // nullopt when the stream ends, or the process is to end, before there is a job.
  std::optional<StartJob> WaitForJob() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return start_ || ended_ || terminating_; });
    return start_;
  }

  // False when the stream broke before the job's end was sent.
  bool RunJob(const StartJob& start, const training::v1::DeviceInfo& device) {
    EventSender sender([this](const AttachRequest& event) { return stream_->Write(event); },
                       [this] { OnStreamEnd(); });
    ReportingObserver observer(start, sender);
    const training::v1::Finished finished = RunTraining(start, device, control_, observer);
    {
      const std::lock_guard lock(mutex_);
      if (broken_) return false;
      closing_ = true;
    }
    observer.OnFinished(finished);
    return sender.Drain();
  }

  void Close() {
    stream_->WritesDone();
    std::unique_lock lock(mutex_);
    closing_ = true;
    const bool closed = start_ && changed_.wait_for(lock, kCloseWait, [this] { return ended_; });
    if (!closed) context_.TryCancel();
  }

  grpc::ClientContext context_;
  std::unique_ptr<WorkerService::Stub> stub_;
  std::unique_ptr<Stream> stream_;
  RunControl control_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<StartJob> start_;
  bool ended_ = false;        // No more commands come.
  bool closing_ = false;      // The end of the stream is expected.
  bool broken_ = false;       // It came unexpected.
  bool terminating_ = false;  // A signal asked the process to end.
};

}  // namespace

int RunAttached(const std::string& daemon_address, const std::string& worker_id,
                const training::v1::DeviceInfo& device) {
  return Attachment(daemon_address).Serve(worker_id, device);
}

}  // namespace genesis
