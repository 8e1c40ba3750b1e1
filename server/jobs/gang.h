#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/workers.h"

namespace genesis {

// Returns true if several workers hold the job in its current or last attempt.
inline bool IsGang(const training::v1::Job& job) { return job.ranks_size() > 1; }

// Returns true if the worker holds the job, with any rank.
bool IsHeldBy(const training::v1::Job& job, const std::string& worker_id);

// "rank 3 on gpu-7/cuda:0", for messages.
std::string DescribeRank(const training::v1::Job& job, int rank);

// Returns the rank assignments of the workers of one attempt, in their order, with the addresses at
// which they reach each other and a new secret. Empty for a single worker.
std::vector<training::v1::RankAssignment> AssignRanks(const std::vector<WorkerLease>& leases);

// Same, for the job's record.
std::vector<training::v1::RankStatus> RankStatusesOf(const std::vector<WorkerLease>& leases);

// Copies a rank's step report into its status, and marks the rank that the others wait for.
void NoteRankSteps(const training::v1::Steps& steps, absl::Time now, int rank,
                   training::v1::Job& job);

// Marks the rank that the others wait for. Marks none until all ranks have reported a step, or if
// one has not reported for some seconds.
void MarkStraggler(absl::Time now, training::v1::Job& job);

// Returns the fraction of a step, 0 to 1, that the rank with the longest wait spends waiting for
// the others; nullopt for a job of one process, and until all ranks have reported a step.
std::optional<double> LongestWait(const training::v1::Job& job);

// Called when rank 0 reports the end of the attempt. Copies its last step to all ranks, because
// their reports may arrive late or never, and all have ended or are about to.
void NoteEnd(training::v1::Job& job);

}  // namespace genesis
