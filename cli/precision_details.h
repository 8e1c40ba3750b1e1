#pragma once

#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"

namespace genesis::cli {

// Return the model and the data of a job: "world_model", "trajectories pendulum.npz".
std::string DescribeModel(const training::v1::JobSpec& spec);
std::string DescribeDataset(const training::v1::JobSpec& spec);

// Returns warnings about tensor sizes that slow down the job's reduced precision, at most a
// few; empty for a job in FP32.
std::vector<std::string> PrecisionWarnings(const training::v1::Job& job);

// Adds lines about the precision of a job: the mode with its reason, refused modes, hardware, the
// measurements of AUTO, and then mode changes and incidents, newest last.
void AddPrecision(const training::v1::Job& job,
                  std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace genesis::cli
