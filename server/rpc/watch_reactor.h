#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one WatchJob call. During a write it keeps the newest snapshot and a
// limited number of events. Finishes when the final state and all events are sent, on cancel, or at
// server shutdown. Then the call is counted and the reactor deletes itself.
grpc::ServerWriteReactor<training::v1::WatchJobResponse>* StartWatch(
    const ApiCall& call, JobManager* jobs, const training::v1::WatchJobRequest& request);

}  // namespace genesis
