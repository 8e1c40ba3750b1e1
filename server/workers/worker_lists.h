#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "genesis/training/v1/operations.pb.h"
#include "server/workers/rank_store.h"
#include "server/workers/worker.h"
#include "server/workers/worker_actions.h"
#include "server/workers/workers.h"

namespace genesis {

// The workers of a table, keyed by worker ID.
using WorkersById = std::map<std::string, Worker>;

std::set<std::string> IdsOf(const WorkersById& workers);

WorkerCounts CountWorkers(const WorkersById& workers);

// Returns the workers in the order of their starts.
std::vector<training::v1::WorkerInfo> ListWorkers(const WorkersById& workers);

// Returns the workers that a gang of `ranks` can reserve, in the order of preference: those of the
// reservation, or, if it is "", those without a reservation.
std::vector<std::string> Candidates(const WorkersById& workers, int ranks,
                                    const std::string& reservation = "");

std::vector<WorkerLease> LeasesOf(const WorkersById& workers, const std::vector<std::string>& ids);

// Sends the store's responses to the ranks of the job.
void SendAnswers(const WorkersById& workers, const std::string& job_id,
                 const RankStore::Answers& answers, WorkerActions& actions);

}  // namespace genesis
