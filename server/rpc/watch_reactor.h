#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one WatchJob call. It keeps the newest snapshot and a bounded number of
// events during a write. Finishes when the final state and all events are sent, on cancel, or when
// the server shuts down. Then it is counted and deletes itself.
grpc::ServerWriteReactor<training::v1::WatchJobResponse>* StartWatch(
    const ApiCall& call, JobManager* jobs, const training::v1::WatchJobRequest& request);

}  // namespace genesis
