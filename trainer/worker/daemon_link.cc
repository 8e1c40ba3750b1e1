#include "trainer/worker/daemon_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/environment.h"
#include "base/exit_code.h"
#include "base/files/shared_folder.h"
#include "base/local_address.h"
#include "base/steady_time.h"
#include "base/version.h"
#include "config/job/worker_lease.h"
#include "config/precision/gate.h"
#include "genesis/training/v1/worker_service.grpc.pb.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/run/training_run.h"
#include "trainer/worker/error_line.h"
#include "trainer/worker/event_sender.h"
#include "trainer/worker/rank_run.h"
#include "trainer/worker/rank_store_client.h"
#include "trainer/worker/reporting_observer.h"
#include "trainer/worker/termination.h"
#include "trainer/worker/weights_link.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::AttachResponse;
using training::v1::StartJob;
using training::v1::WorkerService;

using Stream = grpc::ClientReaderWriter<AttachRequest, AttachResponse>;

// Time for the daemon to close the stream after the end of the job.
constexpr absl::Duration kCloseWait = absl::Seconds(10);
// Time for a job without a daemon to finish its step.
constexpr absl::Duration kStopWait = absl::Seconds(60);
// Time for a rank to notice that another is gone and to report its end.
constexpr absl::Duration kAbandonWait = absl::Seconds(5);
// Pauses between calls to a lost daemon.
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kStableStream = absl::Seconds(10);
// Time that a worker started by a cluster for one job waits for its daemon, and the longest pause
// between its calls.
constexpr absl::Duration kReservedPatience = absl::Minutes(10);
constexpr absl::Duration kReservedPause = absl::Seconds(5);

// Returns "trainer" for "trainer:50051", "fd00::7" for "[fd00::7]:50051".
std::string HostOf(const std::string& server) {
  absl::string_view host = server;
  host = host.substr(0, host.rfind(':'));
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  return std::string(host);
}

// Returns why this host's environment forbids reduced precision, or "". In the latter case only the
// daemon's gate decides.
std::string OwnVeto(const std::string& host) {
  const PrecisionGate gate = ReadPrecisionGate(
      [](const std::string& name) {
        const std::optional<std::string> value = ProcessEnvironment(name);
        return value.has_value() || name != "ENABLE_FP16_TRAINING" ? value : "true";
      },
      /*yaml_allows=*/true);
  return gate.enabled ? "" : gate.reason + " on " + host;
}

// Returns the name of a worker that the daemon has not named. `begin` distinguishes the worker from
// a later process with the same PID, and from earlier attachments of this process.
std::string OwnName(int64_t begin) {
  return HostName() + "-" + std::to_string(getpid()) + "-" + std::to_string(begin);
}

AttachRequest Hello(const DaemonToServe& daemon, const std::string& own_name,
                    const training::v1::DeviceInfo& device) {
  AttachRequest request;
  training::v1::Hello& hello = *request.mutable_hello();
  hello.set_worker_id(daemon.worker_id);
  hello.set_pid(getpid());
  hello.set_version(kVersion);
  *hello.mutable_device() = device;
  if (!daemon.remote()) return request;
  training::v1::RemoteHost& host = *hello.mutable_remote();
  host.set_name(HostName());
  host.set_reservation(daemon.reservation);
  hello.mutable_device()->set_reduced_precision_disabled(OwnVeto(host.name()));
  host.mutable_checkpoints()->set_path(daemon.checkpoint_dir);
  host.mutable_checkpoints()->set_id(ReadFolderId(daemon.checkpoint_dir));
  hello.set_worker_id(own_name);
  return request;
}

// One stream to the daemon. The sender's thread writes (before it is attached, the thread that
// sends Hello); the reader's thread reads.
struct Connection {
  explicit Connection(const std::shared_ptr<grpc::Channel>& channel)
      : stub(WorkerService::NewStub(channel)), stream(stub->Attach(&context)) {}

  // Opens a stream with the current tokens and certificates. INVALID_ARGUMENT if they are unusable.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(const DaemonToServe& daemon) {
    grpc::ChannelArguments arguments;
    // Use a separate channel: a shared one would still be in the back-off of the previous one.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // A vanished host closes no connection, whereas a vanished process closes its socket.
    if (daemon.remote()) {
      constexpr int kMillisecondsPerSecond = 1000;
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveSeconds * kMillisecondsPerSecond);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                       kKeepaliveTimeoutSeconds * kMillisecondsPerSecond);
      arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    }
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        OpenChannel(daemon.address, arguments);
    if (!channel.ok()) return channel.status();
    return std::make_shared<Connection>(*channel);
  }

  grpc::ClientContext context;
  std::unique_ptr<WorkerService::Stub> stub;
  std::unique_ptr<Stream> stream;
};

// The worker's side of the stream: a thread reads commands and reconnects when the stream breaks,
// the sender writes events, and the calling thread trains.
class Attachment {
 public:
  Attachment(DaemonToServe daemon, const training::v1::DeviceInfo& device)
      : daemon_(std::move(daemon)),
        device_(device),
        store_(std::make_shared<RankStoreClient>(
            [this](const training::v1::StoreRequest& request) { SendToStore(request); })) {}

  int Serve() {
    absl::StatusOr<std::shared_ptr<Connection>> connection = Connection::Open(daemon_);
    if (!connection.ok()) {
      PrintErrorLine("genesis-worker: ", connection.status().message());
      last_ = grpc::StatusCode::INVALID_ARGUMENT;
      return ToInt(ExitCode::kUsage);
    }
    Stream& stream = *(*connection)->stream;
    SetConnection(*std::move(connection));
    if (!stream.Write(Hello(daemon_, own_name_, device_))) {
      const grpc::Status status = stream.Finish();
      last_ = status.error_code();
      PrintErrorLine("the daemon at ", daemon_.address.server,
                     " cannot be reached: ", status.error_message());
      return ToInt(ExitCode::kFailure);
    }
    AttachSender();
    std::thread reader([this] { ReadCommands(); });
    const TerminationWatch watch([this] { OnSignal(); });
    const std::optional<StartJob> start = WaitForJob();
    // From here on the worker keeps training through a restart of the daemon.
    if (start) OutliveParent();
    const bool told = start ? RunJob(*start) : true;
    Close();
    reader.join();
    if (abandoned_.joinable()) abandoned_.join();
    if (!told) PrintErrorLine("failed to report the end of the job: ", problem_);
    const bool refused = !start && !problem_.empty() && !Terminating();
    if (refused) {
      PrintErrorLine("the daemon at ", daemon_.address.server,
                     " refused this worker or was lost: ", problem_);
    }
    const bool good = told && !refused;
    return ToInt(good ? ExitCode::kOk : ExitCode::kFailure);
  }

  // Call after Serve. Returns whether the worker got no job and another call may succeed.
  bool lacked_daemon() const {
    switch (last_) {
      case grpc::StatusCode::PERMISSION_DENIED:
      case grpc::StatusCode::UNAUTHENTICATED:
      case grpc::StatusCode::INVALID_ARGUMENT:
      case grpc::StatusCode::FAILED_PRECONDITION:
        return false;
      default:
        return !job().has_value() && !Terminating();
    }
  }

 private:
  // Methods called by the reader's thread.

  void ReadCommands() {
    do {
      Stream& stream = *connection()->stream;
      for (AttachResponse command; stream.Read(&command);) Obey(command);
    } while (EndStream() && DialAgain());
    control_.RequestStop(/*checkpoint=*/false);
    store_->Close("the daemon is lost");
    sender_.GiveUp();
    const absl::MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
    // On a host other than the daemon's, no other process would end a hanging worker.
    if (daemon_.remote() && start_ &&
        !changed_.WaitUntil(mutex_, SteadyNow() + kStopWait,
                            [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closing_; })) {
      PrintErrorLine("training did not stop within ", absl::FormatDuration(kStopWait),
                     "; the process ends");
      _exit(ToInt(ExitCode::kFailure));
    }
  }

  void Obey(AttachResponse& command) {
    switch (command.command_case()) {
      case AttachResponse::kStartJob: {
        const absl::MutexLock lock(&mutex_);
        // A worker serves one job; a second StartJob is a bug of the daemon.
        if (start_) break;
        control_.SetMetricValues(command.start_job().metric_values());
        start_ = std::move(*command.mutable_start_job());
        break;
      }
      case AttachResponse::kTakeCheckpoint:
        control_.RequestCheckpoint();
        break;
      case AttachResponse::kStopJob:
        if (command.stop_job().abandon()) {
          Abandon();
        } else {
          control_.RequestStop(command.stop_job().checkpoint());
        }
        break;
      case AttachResponse::kStoreResponse:
        store_->OnResponse(command.store_response());
        break;
      case AttachResponse::kAcknowledged:
        sender_.Acknowledge(command.acknowledged().sequence());
        break;
      case AttachResponse::kLeaveReducedPrecision:
        control_.RequestFp32(command.leave_reduced_precision().reason());
        break;
      case AttachResponse::kMetricValues:
        control_.SetMetricValues(command.metric_values());
        break;
      case AttachResponse::kPublishWeights:
        weights_.SetSocket(command.publish_weights().socket());
        control_.SetWantedWeights(command.publish_weights());
        break;
      case AttachResponse::COMMAND_NOT_SET:
        break;
    }
  }

  // Ends the attempt because another rank is gone. A blocked rank would not notice by itself: it
  // would wait half an hour for a silent rank.
  void Abandon() {
    control_.RequestStop(/*checkpoint=*/false);
    store_->Close("another rank is gone, and this attempt is over");
    if (abandoned_.joinable()) return;
    abandoned_ = std::thread([this] {
      const absl::MutexLock lock(&mutex_);
      const auto closing = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closing_; };
      if (changed_.WaitUntil(mutex_, SteadyNow() + kAbandonWait, closing)) return;
      if (observer_ != nullptr) observer_->OnAbandoned();
      // Wait until the daemon has received the report.
      changed_.WaitUntil(mutex_, SteadyNow() + kAbandonWait, closing);
      if (closing_) return;
      PrintErrorLine("another rank is gone, and this one waits for it; the process ends");
      _exit(ToInt(ExitCode::kFailure));
    });
  }

  // Ends the stream. Returns whether a job continues without it.
  bool EndStream() {
    sender_.Detach();
    control_.SetWantedWeights({});
    const grpc::Status status = connection()->stream->Finish();
    problem_ = status.error_message();
    last_ = status.error_code();
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) sender_.Refused();
    const absl::MutexLock lock(&mutex_);
    return start_ && !closing_ && !terminating_ &&
           status.error_code() != grpc::StatusCode::PERMISSION_DENIED;
  }

  // Reconnects to the daemon. Returns false if it gives up or need not reconnect. Requires a job.
  bool DialAgain() {
    PrintErrorLine("the daemon's stream broke: ", problem_, "; training continues");
    const StartJob start = *job();
    const absl::Time give_up = SteadyNow() + absl::Seconds(start.patience_seconds());
    // A stream that broke immediately does not indicate that the next one will hold.
    if (SteadyNow() - stream_begin_ > kStableStream) pause_ = kFirstPause;
    while (SteadyNow() < give_up) {
      if (Pause(pause_)) return false;
      pause_ = std::min(2 * pause_, kLongestPause);
      absl::StatusOr<std::shared_ptr<Connection>> connection = Connection::Open(daemon_);
      if (!connection.ok()) {
        problem_ = std::string(connection.status().message());
        continue;
      }
      Stream& stream = *(*connection)->stream;
      SetConnection(*std::move(connection));
      AttachRequest hello = Hello(daemon_, own_name_, device_);
      hello.set_job_id(start.job_id());
      hello.set_claim(start.claim());
      AttachResponse first;
      if (stream.Write(hello) && stream.Read(&first)) {
        Obey(first);
        PrintErrorLine("the daemon is back");
        stream_begin_ = SteadyNow();
        AttachSender();
        store_->Resend();
        const absl::MutexLock lock(&mutex_);
        if (observer_ != nullptr) observer_->SendSection();
        return true;
      }
      const grpc::Status status = stream.Finish();
      problem_ = status.error_message();
      // The job has ended, or another worker has it.
      if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) return false;
    }
    // Another worker may have a remote worker's job by now, so write no checkpoint.
    control_.RequestStop(/*checkpoint=*/!daemon_.remote());
    return false;
  }

  void SetConnection(std::shared_ptr<Connection> connection) {
    const absl::MutexLock lock(&mutex_);
    connection_ = std::move(connection);
  }

  // Returns true if there is no longer a reason to reconnect.
  bool Pause(absl::Duration pause) {
    const absl::MutexLock lock(&mutex_);
    return changed_.WaitUntil(mutex_, SteadyNow() + pause, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return closing_ || terminating_;
    });
  }

  void AttachSender() {
    sender_.Attach([connection = connection()](const AttachRequest& event) {
      return connection->stream->Write(event);
    });
  }

  // Methods called by other threads.

  std::shared_ptr<Connection> connection() const {
    const absl::MutexLock lock(&mutex_);
    return connection_;
  }

  std::optional<StartJob> job() const {
    const absl::MutexLock lock(&mutex_);
    return start_;
  }

  bool Terminating() const {
    const absl::MutexLock lock(&mutex_);
    return terminating_;
  }

  void OnSignal() {
    control_.RequestStop(/*checkpoint=*/true);
    const absl::MutexLock lock(&mutex_);
    terminating_ = true;
    changed_.NotifyAll();
  }

  bool HasJobOrEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return start_.has_value() || ended_ || terminating_;
  }

  // Returns nullopt if the stream or the process ends before there is a job.
  std::optional<StartJob> WaitForJob() {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Attachment::HasJobOrEnd));
    return start_;
  }

  void SendToStore(const training::v1::StoreRequest& request) {
    AttachRequest event;
    {
      const absl::MutexLock lock(&mutex_);
      event.set_job_id(start_->job_id());
      event.set_claim(start_->claim());
    }
    *event.mutable_store_request() = request;
    sender_.Enqueue(std::move(event));
  }

  // Runs the job. Returns false if the daemon was lost before it received the job's end.
  bool RunJob(const StartJob& start) {
    ReportingObserver observer(start, sender_, [this](const auto& weights, const auto& file) {
      return weights_.Send(weights, file);
    });
    {
      const absl::MutexLock lock(&mutex_);
      observer_ = &observer;
    }
    RankGroup alone;
    const training::v1::Finished finished =
        start.rank().size() < 2 ? RunTraining(start, device_, control_, observer, alone)
                                : RunGangRank(start, store_, HostOf(daemon_.address.server),
                                              device_, control_, observer);
    observer.OnFinished(finished);
    const bool told = sender_.Drain();
    const absl::MutexLock lock(&mutex_);
    observer_ = nullptr;
    return told;
  }

  void Close() {
    {
      const absl::MutexLock lock(&mutex_);
      closing_ = true;
      changed_.NotifyAll();
      if (ended_) return;
    }
    const std::shared_ptr<Connection> last = connection();
    last->stream->WritesDone();
    const absl::MutexLock lock(&mutex_);
    const bool closed =
        start_ && changed_.WaitUntil(mutex_, SteadyNow() + kCloseWait,
                                     [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended_; });
    if (!closed) last->context.TryCancel();
  }

  const DaemonToServe daemon_;
  const std::string own_name_ =
      OwnName(std::chrono::system_clock::now().time_since_epoch().count());
  const training::v1::DeviceInfo device_;
  RunControl control_;
  EventSender sender_;
  WeightsLink weights_{daemon_.address};
  const std::shared_ptr<RankStoreClient> store_;
  std::thread abandoned_;  // Used by the reader's thread until joined.
  // Used by the reader's thread while it runs: why the newest stream ended, when it began, how long
  // to wait before the next.
  std::string problem_;
  grpc::StatusCode last_ = grpc::StatusCode::OK;
  absl::Time stream_begin_ = SteadyNow();
  absl::Duration pause_ = kFirstPause;

  mutable absl::Mutex mutex_;
  SteadyCondition changed_;  // Signals ended_, closing_ and terminating_, for waits with a timeout.
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
  std::optional<StartJob> start_ ABSL_GUARDED_BY(mutex_);
  ReportingObserver* observer_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Set while the job runs.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;                     // No more commands will arrive.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;      // The end of the stream is expected.
  bool terminating_ ABSL_GUARDED_BY(mutex_) = false;  // A signal requested the end of the process.
};

// Returns whether SIGTERM or SIGINT arrives within `pause`. Both must be blocked.
bool IsTerminatedWithin(absl::Duration pause) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const timespec wait = absl::ToTimespec(pause);
  return sigtimedwait(&signals, nullptr, &wait) > 0;
}

}  // namespace

int RunAttached(const DaemonToServe& daemon, const training::v1::DeviceInfo& device) {
  // A worker outlives its daemon, and so the daemon's terminal or process group.
  std::signal(SIGHUP, SIG_IGN);
  absl::Time give_up = SteadyNow() + kReservedPatience;
  absl::Duration pause = kFirstPause;
  for (;;) {
    Attachment attachment(daemon, device);
    const absl::Time begin = SteadyNow();
    const int code = attachment.Serve();
    if (daemon.reservation.empty() || !attachment.lacked_daemon()) return code;
    // The worker had been attached, so restart the wait.
    if (SteadyNow() - begin > kStableStream) {
      give_up = SteadyNow() + kReservedPatience;
      pause = kFirstPause;
    }
    if (SteadyNow() > give_up || IsTerminatedWithin(pause)) return code;
    pause = std::min(2 * pause, kReservedPause);
  }
}

}  // namespace genesis
