#pragma once

#include "metrics/metrics.h"
#include "server/api/api_gate.h"
#include "server/api/event_watches.h"
#include "server/api/training_api.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/datasets/replay_store.h"
#include "server/jobs/job_manager.h"
#include "server/weights/weights_hub.h"

namespace genesis {

// The objects that a transport of TrainingService needs: the gate and the unary methods, and what
// its streams read and write.
//
// Owner: the daemon owns each object. All outlive the transports and are never null.
struct ApiParts {
  ApiGate* gate;
  TrainingApi* api;
  JobManager* jobs;
  ReplayStore* datasets;
  CheckpointFiles* files;
  Metrics* metrics;
  EventWatches* watches;
  WeightsHub* weights;
};

}  // namespace genesis
