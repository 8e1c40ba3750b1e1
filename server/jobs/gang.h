#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/workers.h"

namespace genesis {

// Whether several workers hold the job in its present or last attempt.
inline bool IsGang(const training::v1::Job& job) { return job.ranks_size() > 1; }

// Whether the worker holds the job, with whatever rank.
bool IsHeldBy(const training::v1::Job& job, const std::string& worker_id);

// "rank 3 on gpu-7/cuda:0", for messages.
std::string DescribeRank(const training::v1::Job& job, int rank);

// The places of the workers of one attempt, in their order: what each is told, with addresses at
// which they reach each other and a new secret. Empty for one worker alone.
std::vector<training::v1::RankAssignment> AssignRanks(const std::vector<WorkerLease>& leases);

// The same for the job's record.
std::vector<training::v1::RankStatus> RankStatusesOf(const std::vector<WorkerLease>& leases);

// Takes what a rank tells of its steps into its status, and marks the one that the others wait for.
void NoteRankSteps(const training::v1::Steps& steps, absl::Time now, int rank,
                   training::v1::Job& job);

// Marks the rank that the others wait for; none until all ranks have told of a step, and where one
// has not told of any for some seconds.
void MarkStraggler(absl::Time now, training::v1::Job& job);

// The part of a step in which the rank that waits longest waits for the others, 0 to 1; nullopt
// for a job of one process, and until all ranks have told of a step.
std::optional<double> LongestWait(const training::v1::Job& job);

// Where rank 0 has told the end of the attempt: its last step is that of all, for the others tell
// of theirs later, if at all, and all have ended or are about to.
void NoteEnd(training::v1::Job& job);

}  // namespace genesis
