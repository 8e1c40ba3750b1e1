#pragma once

#include "server/jobs/counters.h"
#include "server/jobs/training_stats.h"

namespace genesis {

// Statistics of training since the daemon started: sums, and how they went over time.
//
// Owner: JobManager. Threads: any.
struct JobStatistics {
  Counters counters;
  TrainingStats training;
};

}  // namespace genesis
