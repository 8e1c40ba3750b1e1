#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Returns the key of jobs whose losses are comparable step by step: model, data, optimizer, batch,
// seed and length, but neither precision nor the times of checkpoints and evaluations. Equal
// workloads give equal bytes. All defaults of `spec` must be filled in.
std::string WorkloadKey(const training::v1::JobSpec& spec);

}  // namespace genesis
