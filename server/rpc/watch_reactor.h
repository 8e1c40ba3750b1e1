#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "metrics/metrics.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one WatchJob call. It keeps one snapshot, the newest, while a write is
// under way; finishes after the final state, on cancel, or when the server shuts down; is counted
// then, and deletes itself.
grpc::ServerWriteReactor<training::v1::WatchJobResponse>* StartWatch(JobManager* jobs,
                                                                     Metrics* metrics,
                                                                     const std::string& job_id);

}  // namespace genesis
