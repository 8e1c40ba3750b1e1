// The pool's own thread: starts missing workers, ends overdue ones, reaps ended ones.
#include <poll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "server/workers/worker_pool.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// Interval of log trims.
constexpr absl::Duration kTrimPause = absl::Seconds(1);
// Interval of rounds without events, and so the maximum delay of a deadline.
constexpr int kRoundMs = 200;

}  // namespace

void WorkerPool::Loop() {
  for (;;) {
    ReapEnded();
    Apply([](WorkerTable& table) { return table.Tend(); });
    SpawnMissing();
    TrimLogs();
    if (Read(&WorkerTable::ended)) return;
    WaitForNews();
  }
}

void WorkerPool::ReapEnded() {
  for (const auto& [id, process] : RunningProcesses()) {
    pollfd ended = {process->pidfd(), POLLIN, 0};
    if (poll(&ended, 1, 0) <= 0) continue;
    const ProcessExit exit = process->Reap();
    absl::MutexLock lock(&mutex_);
    table_.OnExit(id, exit);
    processes_.erase(id);
  }
}

void WorkerPool::SpawnMissing() {
  for (;;) {
    const std::optional<SpawnWorker> missing =
        Locked([](WorkerTable& table) { return table.NextSpawn(); });
    if (!missing.has_value() || !Spawn(*missing)) return;
  }
}

bool WorkerPool::Spawn(const SpawnWorker& spawn) {
  absl::StatusOr<WorkerProcess> spawned =
      WorkerProcess::Spawn(options_.workers.program,
                           {"--daemon", options_.address, "--worker-id", spawn.worker_id,
                            "--threads", absl::StrCat(options_.threads), "--device", spawn.device},
                           {.log_path = logs_.PathOf(spawn.worker_id)});
  WorkerActions actions;
  const bool started = spawned.ok();
  if (!started) {
    absl::MutexLock lock(&mutex_);
    actions = table_.OnSpawnFailed(spawn.worker_id, std::string(spawned.status().message()));
  } else {
    const auto process = std::make_shared<const WorkerProcess>(*std::move(spawned));
    spdlog::debug("worker {} is process {} on {}", spawn.worker_id, process->pid(), spawn.device);
    absl::MutexLock lock(&mutex_);
    processes_.emplace(spawn.worker_id, process);
    actions = table_.OnSpawned(spawn.worker_id, process->pid(), process->start_ticks());
  }
  Perform(actions);
  return started;
}

void WorkerPool::TrimLogs() {
  if (SteadyNow() < next_trim_) return;
  next_trim_ = SteadyNow() + kTrimPause;
  logs_.Trim(Read(&WorkerTable::ids));
}

void WorkerPool::WaitForNews() {
  std::vector<pollfd> watched = {{wake_fd_, POLLIN, 0}};
  const Processes running = RunningProcesses();
  for (const auto& [id, process] : running) watched.push_back({process->pidfd(), POLLIN, 0});
  poll(watched.data(), watched.size(), kRoundMs);
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t ignored = read(wake_fd_, &drained, sizeof(drained));
}

}  // namespace genesis
