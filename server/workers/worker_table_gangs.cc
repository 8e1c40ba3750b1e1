// Jobs of several ranks: workers for all of them, the store by which they find each other, and
// their end when one is gone.
#include <algorithm>
#include <utility>

#include "server/workers/worker_endings.h"
#include "server/workers/worker_table.h"

namespace genesis {
namespace {

// For a rank that can still tell its end, which it does at once; the others are blocked.
constexpr absl::Duration kAbandonGrace = absl::Seconds(15);
// How long workers are kept for a gang that does not ask again: its job may have been cancelled.
constexpr absl::Duration kWantedFor = absl::Seconds(30);

// Workers that can be reserved, in the order in which a gang takes them.
std::vector<std::string> Candidates(const std::map<std::string, Worker>& workers, int ranks) {
  std::vector<std::string> ids;
  std::map<std::string, std::vector<std::string>> by_host;
  for (const auto& [id, worker] : workers) {
    if (worker.phase != WorkerPhase::kWarm || worker.exit) continue;
    // Without it the next daemon could not find the process that holds the job.
    if (!worker.remote && worker.pid == 0) continue;
    ids.push_back(id);
    by_host[worker.host].push_back(id);
  }
  if (ranks == 1) return ids;
  // The smallest host that has enough, else from the largest on, so that few hosts take part.
  std::vector<const std::vector<std::string>*> hosts;
  for (const auto& [host, each] : by_host) hosts.push_back(&each);
  const auto wanted = static_cast<size_t>(ranks);
  std::stable_sort(hosts.begin(), hosts.end(), [wanted](const auto* a, const auto* b) {
    const bool a_fits = a->size() >= wanted;
    const bool b_fits = b->size() >= wanted;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a->size() < b->size() : a->size() > b->size();
  });
  ids.clear();
  for (const auto* host : hosts) ids.insert(ids.end(), host->begin(), host->end());
  return ids;
}

}  // namespace

bool WorkerTable::Keep(const std::string& id, int64_t memory_bytes) {
  Worker& worker = *Find(id);
  const DeviceTable::Device& device = devices_.Get(worker.device_name);
  if (!devices_.HasRoom(device, memory_bytes, clock_.Steady())) return false;
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
    wanted_ = clock_.Steady() < wanted_until_ ? std::max(wanted_, ranks) : ranks;
    wanted_until_ = clock_.Steady() + kWantedFor;
    return {};
  }
  if (ranks > 1) wanted_until_ = absl::InfinitePast();
  std::vector<WorkerLease> leases;
  for (const std::string& id : kept) {
    const Worker& worker = *Find(id);
    leases.push_back({RefOf(id, worker), worker.device, worker.host, worker.peer});
  }
  return leases;
}

WorkerActions WorkerTable::Abandon(const std::string& job_id, const std::string& why) {
  WorkerActions actions;
  Send(job_id, stores_.Close(job_id, why), actions);
  const absl::Time end_at = clock_.Steady() + kAbandonGrace;
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

void WorkerTable::Send(const std::string& job_id, const RankStore::Answers& answers,
                       WorkerActions& actions) {
  for (const RankStore::Answer& answer : answers) {
    const Worker* newest = nullptr;  // One of an earlier attempt may be here still.
    for (const auto& [id, worker] : workers_) {
      if (!HoldsJob(worker.phase) || worker.job_id != job_id || worker.rank != answer.rank)
        continue;
      if (newest == nullptr || worker.claim > newest->claim) newest = &worker;
    }
    if (newest == nullptr || !newest->link) continue;
    SendCommand send{newest->link, {}};
    *send.command.mutable_store_response() = answer.response;
    actions.emplace_back(std::move(send));
  }
}

}  // namespace genesis
