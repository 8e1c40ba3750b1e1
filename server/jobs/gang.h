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

// Returns, for example, "rank 3 on gpu-7/cuda:0".
std::string DescribeRank(const training::v1::Job& job, int rank);

// Returns one rank assignment per worker of an attempt, in order, with the workers' addresses and a
// new secret. Empty for a single worker.
std::vector<training::v1::RankAssignment> AssignRanks(const std::vector<WorkerLease>& leases);

// Returns the same ranks as statuses for the job's record.
std::vector<training::v1::RankStatus> RankStatusesOf(const std::vector<WorkerLease>& leases);

// Copies a rank's step report into its status, and marks the straggler, if any.
void NoteRankSteps(const training::v1::Steps& steps, absl::Time now, int rank,
                   training::v1::Job& job);

// Marks the straggler: the rank that the other ranks wait for. Marks none until all ranks have
// reported a step, or while one has not reported for some seconds.
void MarkStraggler(absl::Time now, training::v1::Job& job);

// Returns the largest fraction of a step, 0 to 1, that a rank spends waiting for other ranks;
// nullopt for a single-process job or until all ranks have reported a step.
std::optional<double> LongestWait(const training::v1::Job& job);

// Handles rank 0's report of the end of the attempt. Copies its last step to all ranks, because
// their own reports may arrive late or never.
void NoteEnd(training::v1::Job& job);

}  // namespace genesis
