// Multi-rank jobs: their workers, the store through which the ranks find each other, and their end
// when a rank is gone.
#include <algorithm>
#include <utility>

#include "server/workers/worker_endings.h"
#include "server/workers/worker_table.h"

namespace genesis {
namespace {

// Time for a rank to report its end. A rank that can report does so now; others are blocked.
constexpr absl::Duration kAbandonGrace = absl::Seconds(15);
// How long workers are kept for a gang that does not try again: its job may have been cancelled.
constexpr absl::Duration kWantedFor = absl::Seconds(30);

}  // namespace

bool WorkerTable::Keep(const std::string& id, int64_t memory_bytes) {
  Worker& worker = *Find(id);
  const DeviceTable::Device& device = devices_.Get(worker.device_name);
  if (!devices_.HasRoom(device, memory_bytes, clock_.Running())) return false;
  worker.memory_bytes = memory_bytes;
  Move(id, worker, WorkerPhase::kReserved);
  return true;
}

std::vector<WorkerLease> WorkerTable::ReserveGang(int ranks, int64_t memory_bytes) {
  if (draining_ || stopping_) return {};
  std::vector<std::string> kept;
  for (const std::string& id : Candidates(workers_, ranks)) {
    if (Keep(id, memory_bytes)) kept.push_back(id);
    if (std::ssize(kept) == ranks) break;
  }
  if (std::ssize(kept) < ranks) {
    for (const std::string& id : kept) Move(id, *Find(id), WorkerPhase::kWarm);
    wanted_ = clock_.Running() < wanted_until_ ? std::max(wanted_, ranks) : ranks;
    wanted_until_ = clock_.Running() + kWantedFor;
    return {};
  }
  if (ranks > 1) wanted_until_ = absl::InfinitePast();
  return LeasesOf(workers_, kept);
}

std::vector<WorkerLease> WorkerTable::ReserveSubmitted(const std::string& name, int ranks) {
  if (draining_ || stopping_ || name.empty()) return {};
  std::vector<std::string> ids = Candidates(workers_, ranks, name);
  if (std::ssize(ids) < ranks) return {};
  ids.resize(static_cast<size_t>(ranks));
  for (const std::string& id : ids) Move(id, *Find(id), WorkerPhase::kReserved);
  return LeasesOf(workers_, ids);
}

WorkerActions WorkerTable::CloseReservation(const std::string& name) {
  WorkerActions actions;
  reservations_.erase(name);
  for (auto& [id, worker] : workers_) {
    if (worker.reservation != name || worker.phase != WorkerPhase::kWarm) continue;
    Move(id, worker, WorkerPhase::kLeaving);
    actions.emplace_back(CloseStream{worker.link});
  }
  return actions;
}

WorkerActions WorkerTable::Abandon(const std::string& job_id, const std::string& why) {
  WorkerActions actions;
  SendAnswers(workers_, job_id, stores_.Close(job_id, why), actions);
  const absl::Time end_at = clock_.Running() + kAbandonGrace;
  for (auto& [id, worker] : workers_) {
    if (!HoldsJob(worker.phase) || worker.job_id != job_id || worker.exit) continue;
    worker.abandoned = true;
    if (worker.link) actions.emplace_back(AbandonCommand(worker));
    if (end_at >= worker.end_at) continue;
    worker.end_at = end_at;
    worker.end_reason = why;
  }
  return actions;
}

}  // namespace genesis
