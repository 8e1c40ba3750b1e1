#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Returns the state of evaluation.metric after the reported `values`, by step. `before` is the
// state before the newest report: it counts if its best step is not among the values, of which only
// the newest are kept. `ended` jobs get no FollowedMetric.early_end.
training::v1::FollowedMetric FollowMetric(const training::v1::EvaluationSpec& spec,
                                          const std::map<int64_t, double>& values,
                                          const training::v1::FollowedMetric* before, bool ended);

// Returns what the job's worker has to know about evaluation.metric. `checkpoints` are the job's.
training::v1::MetricValues MetricValuesOf(const training::v1::Job& job,
                                          const std::vector<training::v1::Checkpoint>& checkpoints);

}  // namespace genesis
