// The pool's own thread: starts workers that are missing, ends those that are overdue, buries those
// that have ended.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "server/workers/worker_pool.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(30);
// From SIGTERM, on which a worker checkpoints if it can, to SIGKILL.
constexpr absl::Duration kTermGrace = absl::Seconds(10);
// Between looks at what workers have written.
constexpr absl::Duration kTrimPause = absl::Seconds(1);
// Between rounds when no process, stream or caller has news: how late a deadline may be noticed.
constexpr int kRoundMs = 200;

std::string DescribeExit(const ProcessExit& exit) {
  if (!exit.known) return "ended";
  return exit.signal != 0 ? absl::StrCat("ended by signal ", exit.signal)
                          : absl::StrCat("exited with ", exit.exit_code);
}

}  // namespace

void WorkerPool::Loop() {
  for (;;) {
    for (const auto& tell : Tend()) tell();
    TrimLogs();
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ && workers_.empty()) return;
    }
    WaitForNews();
  }
}

void WorkerPool::TrimLogs() {
  if (SteadyNow() < next_trim_) return;
  next_trim_ = SteadyNow() + kTrimPause;
  std::set<std::string> running;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, worker] : workers_) running.insert(id);
  }
  logs_.Trim(running);
}

WorkerPool::PendingCallbacks WorkerPool::Tend() {
  PendingCallbacks callbacks;
  absl::MutexLock lock(&mutex_);
  ReapEnded();
  EndHung(callbacks);
  EndOverdue();
  RemoveGone(callbacks);
  SpawnMissing();
  return callbacks;
}

void WorkerPool::ReapEnded() {
  for (auto& [id, worker] : workers_) {
    if (worker.exit || !worker.process) continue;
    pollfd ended = {worker.process->pidfd(), POLLIN, 0};
    if (poll(&ended, 1, 0) > 0) worker.exit = worker.process->Reap();
  }
}

void WorkerPool::EndHung(PendingCallbacks& callbacks) {
  const absl::Time now = SteadyNow();
  for (auto& [id, worker] : workers_) {
    if (worker.exit || now < worker.progress.Deadline(options_.hang)) continue;
    worker.end_reason = worker.progress.Describe(options_.hang);
    worker.progress.End();
    worker.end_at = now;
    spdlog::error("worker {} with job {}: {}; it is ended", id, worker.job_id, worker.end_reason);
    callbacks.emplace_back(
        [this, job_id = worker.job_id, claim = worker.claim, reason = worker.end_reason] {
          events_->OnWorkerHung(job_id, claim, reason);
        });
  }
}

void WorkerPool::EndOverdue() {
  const absl::Time now = SteadyNow();
  for (auto& [id, worker] : workers_) {
    if (worker.exit) continue;
    if (now >= worker.back_by && worker.back_by < worker.end_at) {
      worker.end_at = std::exchange(worker.back_by, absl::InfiniteFuture());
      worker.end_reason = worker.absence;
    }
    if (now < worker.end_at) continue;
    if (!worker.was_attached) {
      worker.end_reason =
          absl::StrCat("it did not attach within ", absl::FormatDuration(options_.start_timeout));
    }
    const bool by_force = worker.terminated || !worker.was_attached;
    if (!stopping_) {
      spdlog::warn("worker {}: {}; {}", id, worker.end_reason, by_force ? "killed" : "terminated");
    }
    Signal(worker, by_force ? SIGKILL : SIGTERM);
    worker.terminated = true;
    worker.end_at = by_force ? absl::InfiniteFuture() : now + kTermGrace;
  }
}

void WorkerPool::RemoveGone(PendingCallbacks& callbacks) {
  for (auto it = workers_.begin(); it != workers_.end();) {
    Worker& worker = it->second;
    // One that is reserved but has no job yet waits for Begin or Release: the job must hear of it.
    const bool reserved = worker.leased && worker.job_id.empty() && !stopping_;
    if (!worker.exit || worker.link || reserved) {
      ++it;
      continue;
    }
    WorkerExit exit = ExitOf(it->first, worker);
    GiveBack(worker);
    if (!worker.process) devices_.Leave(worker.device_name);
    it = workers_.erase(it);
    callbacks.emplace_back([this, exit = std::move(exit)] {
      if (!exit.job_id.empty()) events_->OnWorkerGone(exit);
      events_->OnCapacity();
    });
  }
}

WorkerExit WorkerPool::ExitOf(const std::string& worker_id, Worker& worker) {
  WorkerExit exit;
  exit.worker_id = worker_id;
  exit.job_id = worker.job_id;
  exit.claim = worker.claim;
  exit.exit = *worker.exit;
  exit.never_back = worker.adopted;
  if (worker.terminated) exit.forced = worker.end_reason;
  if (worker.process) exit.log_tail = logs_.Tail(worker_id);
  const bool clean = exit.exit.exit_code == 0 || (!exit.exit.known && worker.said_end);
  if (clean) logs_.Remove(worker_id);
  if (!worker.was_attached && !stopping_) {
    NoteStartFailure(absl::StrCat("worker ", worker_id, " ", DescribeExit(exit.exit),
                                  " before it was warm",
                                  exit.log_tail.empty() ? "" : ": " + exit.log_tail.back()));
  } else if (!clean && !stopping_ && !(worker.job_id.empty() && !worker.process)) {
    spdlog::warn("worker {} {}; its output is in {}", worker_id, DescribeExit(exit.exit),
                 worker.process ? logs_.PathOf(worker_id) : "its host's journal");
  }
  return exit;
}

void WorkerPool::NoteStartFailure(const std::string& problem) {
  absl::Duration pause = kFirstPause;
  for (int i = 0; i < start_failures_ && pause < kLongestPause; ++i) pause *= 2;
  pause = std::min(pause, kLongestPause);
  ++start_failures_;
  next_spawn_ = SteadyNow() + pause;
  start_problem_ = problem;
  spdlog::error("{}; next try in {}", problem, absl::FormatDuration(pause));
}

void WorkerPool::SpawnMissing() {
  if (draining_ || stopping_ || SteadyNow() < next_spawn_) return;
  for (const DeviceTable::Device& device : devices_.devices()) {
    if (device.remote || devices_.IsQuarantined(device, SteadyNow())) continue;
    const Counts counts = Count(device.name);
    const int free_slot = counts.busy < device.slots ? 1 : 0;
    int missing = std::max(options_.spares, free_slot) - counts.warm - counts.starting;
    for (; missing > 0; --missing) {
      if (!Spawn(device.name)) return;
    }
  }
}

bool WorkerPool::Spawn(const std::string& device) {
  std::string id;
  // A worker of an earlier daemon with the same process number may be here still.
  do {
    id = absl::StrCat("w", getpid(), "-", next_id_++);
  } while (workers_.contains(id));
  absl::StatusOr<WorkerProcess> process =
      WorkerProcess::Spawn(options_.program,
                           {"--daemon", options_.address, "--worker-id", id, "--threads",
                            absl::StrCat(options_.threads), "--device", device},
                           logs_.PathOf(id));
  if (!process.ok()) {
    NoteStartFailure(std::string(process.status().message()));
    return false;
  }
  spdlog::debug("worker {} is process {} on {}", id, process->pid(), device);
  Worker& worker = Add(id, *std::move(process));
  worker.device_name = device;
  worker.end_at = SteadyNow() + options_.start_timeout;
  return true;
}

void WorkerPool::WaitForNews() {
  std::vector<pollfd> watched = {{wake_fd_, POLLIN, 0}};
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, worker] : workers_) {
      if (!worker.exit && worker.process) {
        watched.push_back({worker.process->pidfd(), POLLIN, 0});
      }
    }
  }
  poll(watched.data(), watched.size(), kRoundMs);
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t ignored = read(wake_fd_, &drained, sizeof(drained));
}

}  // namespace genesis
