#pragma once

#include <memory>

#include "genesis/training/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// Opens the data of a job and checks that all ranks have the same data and the same module file,
// because a path may lead to another copy on another host. Compares sizes, fields, and checksums of
// a sample of the examples and of the module. Throws RunFailure: FAILURE_CAUSE_DATA if the data
// cannot be opened or differs, FAILURE_CAUSE_CONFIG if the module differs, and
// FAILURE_CAUSE_WORKER_EXIT if a replay buffer differs, because it may have grown between two ranks
// and will be the same in the next attempt.
std::unique_ptr<Dataset> OpenSameData(const training::v1::JobSpec& spec, RankGroup& ranks);

// Same checks for a dataset that is already open. Throws RunFailure.
void RequireSameInputs(const training::v1::JobSpec& spec, const Dataset& dataset, RankGroup& ranks);

}  // namespace genesis
