#include "server/workers/worker_lists.h"

#include <algorithm>
#include <utility>

#include "base/timestamp.h"

namespace genesis {

std::set<std::string> IdsOf(const WorkersById& workers) {
  std::set<std::string> ids;
  for (const auto& [id, worker] : workers) ids.insert(id);
  return ids;
}

WorkerCounts CountWorkers(const WorkersById& workers) {
  WorkerCounts counts;
  for (const auto& [id, worker] : workers) {
    const training::v1::WorkerState shown = ShownState(worker);
    if (!worker.reservation.empty()) {
      counts.reserved_busy += shown == training::v1::WORKER_STATE_BUSY ? 1 : 0;
      continue;
    }
    counts.busy += shown == training::v1::WORKER_STATE_BUSY ? 1 : 0;
    counts.warm += shown == training::v1::WORKER_STATE_WARM ? 1 : 0;
    counts.starting += shown == training::v1::WORKER_STATE_STARTING ? 1 : 0;
  }
  return counts;
}

std::vector<training::v1::WorkerInfo> ListWorkers(const WorkersById& workers) {
  std::vector<training::v1::WorkerInfo> infos;
  for (const auto& [id, worker] : workers) infos.push_back(InfoOf(id, worker));
  std::stable_sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) {
    return SecondsBetween(a.start_time(), b.start_time()) > 0;
  });
  return infos;
}

std::vector<std::string> Candidates(const WorkersById& workers, int ranks,
                                    const std::string& reservation) {
  std::vector<std::string> ids;
  std::map<std::string, std::vector<std::string>> by_host;
  for (const auto& [id, worker] : workers) {
    if (worker.phase != WorkerPhase::kWarm || worker.exit) continue;
    if (worker.reservation != reservation) continue;
    // Without its pid, a restarted daemon could not find the process that holds the job.
    if (!worker.remote && worker.pid == 0) continue;
    ids.push_back(id);
    by_host[worker.host].push_back(id);
  }
  if (ranks == 1) return ids;
  // Take the smallest host that has enough workers, otherwise hosts from the largest down, so that
  // few hosts take part.
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

std::vector<WorkerLease> LeasesOf(const WorkersById& workers, const std::vector<std::string>& ids) {
  std::vector<WorkerLease> leases;
  for (const std::string& id : ids) {
    const Worker& worker = workers.at(id);
    leases.push_back({RefOf(id, worker), worker.device, worker.host, worker.peer});
  }
  return leases;
}

void SendAnswers(const WorkersById& workers, const std::string& job_id,
                 const RankStore::Answers& answers, WorkerActions& actions) {
  for (const RankStore::Answer& answer : answers) {
    const Worker* newest = nullptr;  // A worker of an earlier attempt may still be attached.
    for (const auto& [id, worker] : workers) {
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
