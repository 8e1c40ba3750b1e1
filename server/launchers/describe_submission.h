#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// "Slurm job 17", or "the Slurm job genesis-..." until the cluster has given it a number.
std::string SubmissionName(const training::v1::ClusterSubmission& submission);

// Why a queued job of a cluster has not begun, one sentence for Job.queue_reason. `warm`: how many
// of its workers have attached.
std::string DescribeWait(const training::v1::Job& job, int warm);

}  // namespace genesis
