#include "server/workers/worker_pool.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/workers/log_tail.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(30);
// Between rounds when no process, stream or caller has news: how late a deadline may be noticed.
constexpr int kRoundMs = 200;

std::string DescribeExit(const ProcessExit& exit) {
  return exit.signal != 0 ? absl::StrCat("ended by signal ", exit.signal)
                          : absl::StrCat("exited with ", exit.exit_code);
}

}  // namespace

WorkerPool::WorkerPool(Options options)
    : options_(std::move(options)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WorkerPool::~WorkerPool() {
  Stop(absl::ZeroDuration());
  close(wake_fd_);
}

void WorkerPool::Start(WorkerEvents* events) {
  events_ = events;
  thread_ = std::thread([this] { Loop(); });
}

void WorkerPool::Stop(absl::Duration grace) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (auto& [id, worker] : workers_) {
      worker.process.Signal(SIGTERM);
      worker.kill_at = std::min(worker.kill_at, absl::Now() + grace);
    }
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void WorkerPool::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  for (auto& [id, worker] : workers_) {
    if (!worker.leased && worker.link) worker.link->Close();
  }
}

std::optional<WorkerPool::Lease> WorkerPool::Reserve() {
  absl::MutexLock lock(&mutex_);
  if (draining_ || stopping_ || CountLocked().busy >= options_.slots) return std::nullopt;
  for (auto& [id, worker] : workers_) {
    if (!worker.attached || worker.attached_ended || worker.leased || worker.exit) continue;
    worker.leased = true;
    return Lease{id, worker.device};
  }
  return std::nullopt;
}

void WorkerPool::Release(const std::string& worker_id) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found != workers_.end()) found->second.leased = false;
  Wake();
}

void WorkerPool::Begin(const std::string& worker_id, const training::v1::StartJob& start) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  found->second.job_id = start.job_id();
  found->second.claim = start.claim();
  training::v1::AttachResponse command;
  *command.mutable_start_job() = start;
  // Without a link the worker has just died; its burial tells of the job.
  if (found->second.link) found->second.link->Send(command);
  Wake();  // A spare is missing now.
}

void WorkerPool::Send(const std::string& job_id, const training::v1::AttachResponse& command) {
  absl::MutexLock lock(&mutex_);
  Worker* worker = FindByJob(job_id);
  if (worker != nullptr && worker->link) worker->link->Send(command);
}

void WorkerPool::ExpectExit(const std::string& job_id, absl::Duration grace) {
  absl::MutexLock lock(&mutex_);
  Worker* worker = FindByJob(job_id);
  if (worker != nullptr) worker->kill_at = std::min(worker->kill_at, absl::Now() + grace);
}

WorkerPool::Worker* WorkerPool::FindByJob(const std::string& job_id) {
  for (auto& [id, worker] : workers_) {
    if (worker.leased && worker.job_id == job_id) return &worker;
  }
  return nullptr;
}

WorkerPool::Counts WorkerPool::CountLocked() const {
  Counts counts;
  for (const auto& [id, worker] : workers_) {
    if (worker.leased) {
      ++counts.busy;
    } else if (worker.exit || worker.attached_ended) {
      continue;
    } else if (worker.attached) {
      ++counts.warm;
    } else {
      ++counts.starting;
    }
  }
  return counts;
}

WorkerPool::Counts WorkerPool::counts() const {
  absl::MutexLock lock(&mutex_);
  return CountLocked();
}

std::string WorkerPool::start_problem() const {
  absl::MutexLock lock(&mutex_);
  return start_problem_;
}

absl::Status WorkerPool::Attach(const training::v1::Hello& hello,
                                std::shared_ptr<WorkerLink> link) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = workers_.find(hello.worker_id());
    if (found == workers_.end() || found->second.attached) {
      return absl::PermissionDeniedError(absl::StrCat(
          "worker id \"", hello.worker_id(), "\" is not one this daemon has started and awaits"));
    }
    Worker& worker = found->second;
    worker.attached = true;
    worker.device = hello.device();
    worker.link = std::move(link);
    worker.kill_at = absl::InfiniteFuture();
    start_failures_ = 0;
    start_problem_.clear();
    if (draining_ || stopping_) worker.link->Close();
  }
  events_->OnCapacity();
  return absl::OkStatus();
}

void WorkerPool::OnMessage(const std::string& worker_id,
                           const training::v1::AttachRequest& message) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = workers_.find(worker_id);
    if (found == workers_.end()) return;
    const Worker& worker = found->second;
    if (message.job_id() != worker.job_id || message.claim() != worker.claim) {
      spdlog::warn("worker {} reports on job {} claim {}, but holds job {} claim {}; refused",
                   worker_id, message.job_id(), message.claim(), worker.job_id, worker.claim);
      return;
    }
  }
  events_->OnWorkerEvent(message);
}

void WorkerPool::OnDetached(const std::string& worker_id) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = workers_.find(worker_id);
    if (found == workers_.end()) return;
    found->second.attached_ended = true;
    found->second.link.reset();
  }
  Wake();
}

void WorkerPool::Wake() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void WorkerPool::Loop() {
  for (;;) {
    for (const auto& tell : Tend()) tell();
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ && workers_.empty()) return;
    }
    WaitForNews();
  }
}

std::vector<std::function<void()>> WorkerPool::Tend() {
  std::vector<std::function<void()>> news;
  absl::MutexLock lock(&mutex_);
  ReapEnded();
  EndOverdue();
  for (auto it = workers_.begin(); it != workers_.end();) {
    Worker& worker = it->second;
    // One that is reserved but has no job yet waits for Begin or Release: the job must hear of it.
    const bool reserved = worker.leased && worker.job_id.empty() && !stopping_;
    if (!worker.exit || (worker.attached && !worker.attached_ended) || reserved) {
      ++it;
      continue;
    }
    WorkerExit exit = Bury(it->first, worker);
    it = workers_.erase(it);
    news.emplace_back([this, exit = std::move(exit)] {
      if (!exit.job_id.empty()) events_->OnWorkerGone(exit);
      events_->OnCapacity();
    });
  }
  SpawnMissing();
  return news;
}

void WorkerPool::ReapEnded() {
  for (auto& [id, worker] : workers_) {
    if (worker.exit) continue;
    pollfd ended = {worker.process.pidfd(), POLLIN, 0};
    if (poll(&ended, 1, 0) > 0) worker.exit = worker.process.Reap();
  }
}

void WorkerPool::EndOverdue() {
  const absl::Time now = absl::Now();
  for (auto& [id, worker] : workers_) {
    if (worker.exit || now < worker.kill_at) continue;
    if (!worker.attached && !stopping_) {
      spdlog::error("worker {} did not attach within {}; killed", id,
                    absl::FormatDuration(options_.start_timeout));
    } else if (!stopping_) {
      spdlog::warn("worker {} did not end in time; killed", id);
    }
    worker.process.Signal(SIGKILL);
    worker.kill_at = absl::InfiniteFuture();
  }
}

WorkerExit WorkerPool::Bury(const std::string& worker_id, Worker& worker) {
  const std::string log_path = absl::StrCat(options_.log_dir, "/", worker_id, ".log");
  WorkerExit exit{worker_id, worker.job_id, worker.claim, *worker.exit, ReadLogTail(log_path)};
  const bool clean = exit.exit.exit_code == 0;
  if (clean) {
    std::error_code ignored;
    std::filesystem::remove(log_path, ignored);
  }
  if (!worker.attached && !stopping_) {
    NoteStartFailure(absl::StrCat("worker ", worker_id, " ", DescribeExit(exit.exit),
                                  " before it was warm",
                                  exit.log_tail.empty() ? "" : ": " + exit.log_tail.back()));
  } else if (!clean && !stopping_) {
    spdlog::warn("worker {} {}; its output is in {}", worker_id, DescribeExit(exit.exit), log_path);
  }
  return exit;
}

void WorkerPool::NoteStartFailure(const std::string& problem) {
  absl::Duration pause = kFirstPause;
  for (int i = 0; i < start_failures_ && pause < kLongestPause; ++i) pause *= 2;
  pause = std::min(pause, kLongestPause);
  ++start_failures_;
  next_spawn_ = absl::Now() + pause;
  start_problem_ = problem;
  spdlog::error("{}; next try in {}", problem, absl::FormatDuration(pause));
}

void WorkerPool::SpawnMissing() {
  if (draining_ || stopping_ || absl::Now() < next_spawn_) return;
  const Counts counts = CountLocked();
  const int free_slot = counts.busy < options_.slots ? 1 : 0;
  int missing = std::max(options_.spares, free_slot) - counts.warm - counts.starting;
  for (; missing > 0; --missing) {
    const std::string id = absl::StrCat("w", getpid(), "-", next_id_++);
    absl::StatusOr<WorkerProcess> process =
        WorkerProcess::Spawn(options_.program,
                             {"--daemon", options_.address, "--worker-id", id, "--threads",
                              absl::StrCat(options_.threads)},
                             absl::StrCat(options_.log_dir, "/", id, ".log"));
    if (!process.ok()) {
      NoteStartFailure(std::string(process.status().message()));
      return;
    }
    spdlog::debug("worker {} is process {}", id, process->pid());
    Worker& worker = workers_.emplace(id, *std::move(process)).first->second;
    worker.kill_at = absl::Now() + options_.start_timeout;
  }
}

void WorkerPool::WaitForNews() {
  std::vector<pollfd> watched = {{wake_fd_, POLLIN, 0}};
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, worker] : workers_) {
      if (!worker.exit) watched.push_back({worker.process.pidfd(), POLLIN, 0});
    }
  }
  poll(watched.data(), watched.size(), kRoundMs);
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t ignored = read(wake_fd_, &drained, sizeof(drained));
}

}  // namespace genesis
