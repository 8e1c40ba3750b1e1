#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one WatchJob call. It keeps one snapshot, the newest, while a write is
// under way; finishes after the final state, on cancel, or when the server shuts down; deletes
// itself.
grpc::ServerWriteReactor<training::v1::WatchJobResponse>* StartWatch(JobManager* jobs,
                                                                     const std::string& job_id);

}  // namespace genesis
