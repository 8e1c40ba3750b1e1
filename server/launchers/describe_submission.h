#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns "Slurm job 17", or "the Slurm job genesis-..." until the cluster has assigned an ID.
std::string SubmissionName(const training::v1::ClusterSubmission& submission);

// Returns why a queued job of a cluster has not started, in one sentence for Job.queue_reason.
// `warm` is the number of its workers that have attached.
std::string DescribeWait(const training::v1::Job& job, int warm);

}  // namespace genesis
