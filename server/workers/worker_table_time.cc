// Work that depends on time: workers that are missing, hang, are overdue or are gone.
#include <algorithm>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "server/workers/worker_endings.h"
#include "server/workers/worker_table.h"

namespace genesis {

WorkerActions WorkerTable::Tend() {
  WorkerActions actions;
  const absl::Time now = clock_.Running();
  for (auto& [id, worker] : workers_) {
    if (!worker.exit) EndIfHung(id, worker, options_.hang, now, actions);
    if (!worker.exit)
      EndIfOverdue(id, worker, absl::Seconds(options_.workers.start_timeout_seconds), now,
                   stopping_, actions);
  }
  RemoveGone(actions);
  return actions;
}

void WorkerTable::OnExit(const std::string& worker_id, const ProcessExit& exit) {
  if (Worker* worker = Find(worker_id); worker != nullptr) worker->exit = exit;
}

void WorkerTable::RemoveGone(WorkerActions& actions) {
  std::vector<std::string> gone;
  for (const auto& [id, worker] : workers_) {
    // A reserved worker waits for Begin or Release, because its end must be reported to the job.
    const bool awaited = worker.phase == WorkerPhase::kReserved && !stopping_;
    if (worker.exit && !worker.link && !awaited) gone.push_back(id);
  }
  for (const std::string& id : gone) {
    actions.emplace_back(ExitOf(id, *Find(id), stopping_));
    Remove(id);
  }
}

std::optional<SpawnWorker> WorkerTable::NextSpawn() {
  const absl::Time now = clock_.Running();
  if (draining_ || stopping_ || !backoff_.MayStart(now)) return std::nullopt;
  for (const DeviceTable::Device& device : devices_.devices()) {
    if (device.remote || devices_.IsQuarantined(device, now)) continue;
    const auto spares = std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
      return entry.second.device_name == device.name && IsSpare(entry.second);
    });
    // Free slots need spares: one or, for a waiting gang, one for each of its ranks.
    const int wanted = now < wanted_until_ ? std::max(wanted_, 1) : 1;
    const int free_slots = std::min(device.slots - device.busy, wanted);
    if (spares >= std::max(options_.workers.spares, free_slots)) continue;
    std::string id;
    // An earlier daemon with the same pid may have left a worker with this ID.
    do {
      id = absl::StrCat(id_prefix_, next_id_++);
    } while (workers_.contains(id));
    Add(id, device.name, /*remote=*/false).end_at =
        now + absl::Seconds(options_.workers.start_timeout_seconds);
    return SpawnWorker{id, device.name};
  }
  return std::nullopt;
}

WorkerActions WorkerTable::OnSpawned(const std::string& worker_id, int32_t pid,
                                     int64_t start_ticks) {
  WorkerActions actions;
  Worker* worker = Find(worker_id);
  if (worker == nullptr) return actions;
  worker->pid = pid;
  worker->start_ticks = start_ticks;
  if (stopping_) SignalWorker(worker_id, *worker, SIGTERM, actions);
  if (worker->phase == WorkerPhase::kWarm) actions.emplace_back(TellCapacity{});
  return actions;
}

WorkerActions WorkerTable::OnSpawnFailed(const std::string& worker_id, const std::string& problem) {
  WorkerActions actions = NoteStartFailure(problem);
  const Worker* worker = Find(worker_id);
  if (worker == nullptr) return actions;
  if (worker->link) actions.emplace_back(CloseStream{worker->link});
  Remove(worker_id);
  return actions;
}

WorkerActions WorkerTable::NoteStartFailure(const std::string& problem) {
  const absl::Duration pause = backoff_.NoteFailure(problem, clock_.Running());
  return {WriteLog{spdlog::level::err,
                   absl::StrCat(problem, "; next try in ", absl::FormatDuration(pause))}};
}

}  // namespace genesis
