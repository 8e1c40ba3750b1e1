#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Returns the state of evaluation.metric after the reported `values`, keyed by step. `before` is
// the previous state. Its best step counts even if it is no longer among the values, because only
// the newest are kept. If the job has `ended`, no new FollowedMetric.early_end is set.
training::v1::FollowedMetric FollowMetric(const training::v1::JobSpec& job,
                                          const std::map<int64_t, double>& values,
                                          const training::v1::FollowedMetric* before, bool ended);

// Returns the early end and, of `checkpoints`, which are the job's, the values for its worker.
training::v1::MetricValues MetricValuesOf(const training::v1::Job& job,
                                          const std::vector<training::v1::Checkpoint>& checkpoints);

}  // namespace genesis
