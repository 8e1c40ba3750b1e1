#pragma once

#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/job.pb.h"

namespace genesis::cli {

// The model and the data of a job: "world_model", "dataset.trajectories pendulum.npz".
std::string DescribeModel(const training::v1::JobSpec& spec);
std::string DescribeDataset(const training::v1::JobSpec& spec);

// Sizes that slow the job's reduced precision, a few for a screen; none for a job in FP32.
std::vector<std::string> PrecisionWarnings(const training::v1::Job& job);

// Lines on the precision of a job: what runs and why, what was refused, on what hardware, what AUTO
// measured; then its moves and incidents, newest last.
void AddPrecision(const training::v1::Job& job,
                  std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace genesis::cli
