#pragma once

#include "base/clock.h"
#include "metrics/metrics.h"
#include "server/jobs/checkpoint_requests.h"
#include "server/jobs/dispatcher.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/job_stops.h"
#include "server/jobs/precision_control.h"
#include "server/ledger/job_ledger.h"
#include "server/ledger/training_stats.h"
#include "server/workers/workers.h"

namespace genesis {

// The objects that attempts, reports, requests and submissions share: the record of the jobs and
// the parts of JobManager that change it. `table`, `writer` and `clock` are the ledger's.
//
// Owner: JobManager owns this struct and the objects in it, except `workers` and `metrics`, which
// the daemon owns. All outlive the classes that keep a reference to the struct.
struct JobContext {
  const JobManagerOptions& options;
  JobLedger& ledger;
  JobTable& table;
  Writer& writer;
  const Clock& clock;
  JobStops& stops;
  PrecisionControl& precision;
  CheckpointRequests& checkpoints;
  Dispatcher& dispatcher;
  TrainingStats& stats;
  Workers* workers;
  Metrics* metrics;
};

}  // namespace genesis
