#pragma once

#include <memory>

#include "genesis/training/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// Opens the data of a job, and finds out whether all ranks (null where the process trains alone)
// have the same, and the same file of a module, for a path may lead to another copy on another
// host: sizes, fields, and by checksum a sample of the examples and the module. Throws RunFailure:
// FAILURE_CAUSE_DATA where the data cannot be opened, or differs; but FAILURE_CAUSE_WORKER_EXIT for
// a replay buffer that differs, which may have grown between two ranks and is the same in the next
// attempt; FAILURE_CAUSE_CONFIG for another module.
std::unique_ptr<Dataset> OpenSameData(const training::v1::JobSpec& spec, RankGroup* ranks);

}  // namespace genesis
