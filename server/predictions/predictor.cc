#include "server/predictions/predictor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files/errno_status.h"
#include "base/text/field_error.h"
#include "server/base/guard.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::LoadWeights;
using training::v1::PredictorRequest;
using training::v1::PredictorResponse;
using training::v1::PredictResponse;

// Maximum time to load weights, or to compute the calls of one request.
constexpr absl::Duration kMaxSilence = absl::Minutes(1);
// Maximum wait for the first version of a job that is training.
constexpr absl::Duration kMaxFirstWait = absl::Seconds(10);
// Interval between checks whether the job still has a worker.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
// Limits of one request.
constexpr size_t kMaxCalls = 256;
constexpr size_t kMaxCallBytes = size_t{8} << 20;
// Higher priority than that of workers, because callers wait for a prediction.
constexpr int kNice = 5;

absl::Status ToStatus(const PredictorResponse& response) {
  return {static_cast<absl::StatusCode>(response.code()), response.message()};
}

absl::Status Ended() {
  return absl::UnavailableError("the process that predicts was ended; retry");
}

}  // namespace

Predictor::Predictor(Options options) : options_(std::move(options)), last_use_(absl::Now()) {
  thread_ = std::thread([this] { Run(); });
}

Predictor::~Predictor() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    // The death of the process breaks the connection on which the thread may be waiting.
    if (running_ != nullptr) running_->Signal(SIGKILL);
  }
  thread_.join();
}

bool Predictor::Add(PredictCall& call) {
  absl::Status full;
  {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value() || stopping_) return false;
    last_use_ = absl::Now();
    const size_t bytes = call.request.ByteSizeLong();
    if (waiting_.size() < kMaxWaitingCalls && waiting_bytes_ + bytes <= kMaxWaitingBytes) {
      waiting_bytes_ += bytes;
      waiting_.push_back(std::move(call));
      return true;
    }
    full = absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " predictions of job ", QuoteValue(options_.job_id),
                     " wait already; accepted: at most ", kMaxWaitingCalls, ", of ",
                     kMaxWaitingBytes >> 20, " MiB; retry later"));
  }
  call.callback(full);
  return true;
}

void Predictor::OnWeights(std::shared_ptr<const HeldWeights> weights) {
  absl::MutexLock lock(&mutex_);
  newest_ = std::move(weights);
}

std::optional<Predictor::End> Predictor::end() const {
  absl::MutexLock lock(&mutex_);
  return end_;
}

absl::Time Predictor::last_use() const {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return absl::InfinitePast();
  return computing_ || !waiting_.empty() ? absl::InfiniteFuture() : last_use_;
}

void Predictor::Run() {
  absl::Status status;
  const absl::Status caught = Guarded("Predict", [&] { status = Serve(); });
  if (!caught.ok()) status = caught;
  if (process_.has_value()) {
    {
      absl::MutexLock lock(&mutex_);
      running_ = nullptr;
    }
    process_->Signal(SIGKILL);  // The process has no state to lose.
    process_->Reap();
  }
  std::deque<PredictCall> left;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) status = absl::OkStatus();
    end_ = {status, absl::Now(), has_served_};
    left.swap(waiting_);
    newest_ = nullptr;
  }
  if (status.ok()) {
    spdlog::info("the process that predicted with job {} was ended, unused", options_.job_id);
    status = Ended();
  } else {
    spdlog::warn("predictions of job {}: {}", options_.job_id, status.ToString());
  }
  for (const PredictCall& call : left) call.callback(status);
}

absl::Status Predictor::Serve() {
  if (absl::Status started = StartProcess(); !started.ok()) return started;
  if (absl::Status loaded = LoadFirst(); !loaded.ok()) return loaded;
  has_served_ = true;
  for (;;) {
    Work work = Next();
    absl::Status broken;
    if (work.weights != nullptr) {
      LoadWeights load;
      *load.mutable_weights() = work.weights->weights;
      const absl::Status loaded = Load(load, work.weights->file->descriptor(), broken);
      if (!loaded.ok() && broken.ok()) {
        spdlog::warn("predictions of job {} go on with older weights than version {}: {}",
                     options_.job_id, work.weights->number(), loaded.ToString());
      }
    } else if (work.calls.empty()) {
      return absl::OkStatus();
    }
    work.weights = nullptr;
    if (broken.ok()) broken = Compute(work.calls);
    if (!broken.ok()) return broken;
  }
}

absl::Status Predictor::StartProcess() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus("socketpair", errno);
  }
  socket_.emplace(ends[0], kMaxSilence);
  absl::StatusOr<WorkerProcess> process =
      WorkerProcess::Spawn(options_.program, {"--predict", "--device", "cpu", "--threads", "1"},
                           {.log_path = options_.log_path, .input = ends[1], .nice = kNice});
  close(ends[1]);
  if (!process.ok()) return process.status();
  process_.emplace(*std::move(process));
  spdlog::info("process {} predicts with job {}", process_->pid(), options_.job_id);
  absl::MutexLock lock(&mutex_);
  running_ = &*process_;
  return absl::OkStatus();
}

std::shared_ptr<const HeldWeights> Predictor::AwaitFirst() {
  if (options_.has_worker == nullptr) return nullptr;
  const absl::Time deadline = absl::Now() + kMaxFirstWait;
  while (options_.has_worker() && absl::Now() < deadline) {
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(this, &Predictor::HasFirst), kFirstPause)) break;
  }
  absl::MutexLock lock(&mutex_);
  return std::exchange(newest_, nullptr);
}

absl::Status Predictor::LoadFirst() {
  LoadWeights load = options_.first;
  const std::shared_ptr<const HeldWeights> version = AwaitFirst();
  if (version != nullptr) {
    load.clear_checkpoint_path();
    *load.mutable_weights() = version->weights;
  } else if (load.checkpoint_path().empty()) {
    return absl::UnavailableError(
        absl::StrCat("job ", QuoteValue(options_.job_id), " has published no weights yet; retry"));
  }
  absl::Status broken;
  absl::Status loaded = Load(load, version == nullptr ? -1 : version->file->descriptor(), broken);
  return broken.ok() ? loaded : broken;
}

Predictor::Work Predictor::Next() {
  absl::MutexLock lock(&mutex_);
  computing_ = false;
  while (!HasWork()) {
    const absl::Duration left = last_use_ + kMaxIdle - absl::Now();
    if (!mutex_.AwaitWithTimeout(absl::Condition(this, &Predictor::HasWork), left) &&
        absl::Now() >= last_use_ + kMaxIdle) {
      // No call may be added to a process that is about to end.
      end_ = {absl::OkStatus(), absl::Now(), has_served_};
      return {};
    }
  }
  Work work;
  if (stopping_) return work;
  work.weights = std::exchange(newest_, nullptr);
  size_t bytes = 0;
  while (!waiting_.empty() && work.calls.size() < kMaxCalls) {
    const size_t next = waiting_.front().request.ByteSizeLong();
    if (!work.calls.empty() && bytes + next > kMaxCallBytes) break;
    bytes += next;
    waiting_bytes_ -= next;
    work.calls.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  computing_ = !work.calls.empty();
  return work;
}

absl::StatusOr<PredictorResponse> Predictor::Receive() {
  const absl::StatusOr<MemorySocket::Message> message = socket_->Receive();
  PredictorResponse response;
  if (message.ok() && response.ParseFromString(message->bytes)) return response;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return Ended();
  }
  if (absl::IsDeadlineExceeded(message.status())) {
    return absl::UnavailableError(
        absl::StrCat("the process that predicts with job ", QuoteValue(options_.job_id),
                     " was ended because it took more than ", absl::ToInt64Seconds(kMaxSilence),
                     " s; send smaller batches"));
  }
  return Gone();
}

absl::Status Predictor::Gone() const {
  return absl::UnavailableError(
      absl::StrCat("the process that predicts with job ", QuoteValue(options_.job_id),
                   " ended; retry; its output is in ", options_.log_path));
}

absl::Status Predictor::Send(const PredictorRequest& request, int descriptor) {
  const absl::Status sent = socket_->Send(request.SerializeAsString(), descriptor);
  return sent.ok() ? sent : Gone();
}

absl::Status Predictor::Load(const LoadWeights& load, int descriptor, absl::Status& broken) {
  PredictorRequest request;
  *request.mutable_load() = load;
  broken = Send(request, descriptor);
  if (!broken.ok()) return broken;
  const absl::StatusOr<PredictorResponse> response = Receive();
  broken = response.status();
  return broken.ok() ? ToStatus(*response) : broken;
}

absl::Status Predictor::Compute(std::vector<PredictCall>& calls) {
  PredictorRequest request;
  std::vector<const PredictCall*> sent;
  for (PredictCall& call : calls) {
    const absl::Status wanted =
        call.caller.check == nullptr ? absl::OkStatus() : call.caller.check();
    if (!wanted.ok()) {
      call.callback(wanted);
      continue;
    }
    *request.add_calls() = std::move(call.request);
    sent.push_back(&call);
  }
  if (sent.empty()) return absl::OkStatus();
  absl::Status broken = Send(request);
  for (const PredictCall* const call : sent) {
    absl::StatusOr<PredictorResponse> response =
        broken.ok() ? Receive() : absl::StatusOr<PredictorResponse>(broken);
    broken = response.status();
    if (!broken.ok()) {
      call->callback(broken);
    } else if (const absl::Status status = ToStatus(*response); !status.ok()) {
      call->callback(status);
    } else {
      call->callback(std::move(*response->mutable_prediction()));
    }
  }
  return broken;
}

}  // namespace genesis
