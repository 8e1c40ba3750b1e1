#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one ImportCheckpoint call. It reads a message, writes its content on a
// thread that may wait for the disk, and reads the next only then. Finishes when the checkpoint is
// recorded, at the first fault, on cancel, or when the server shuts down; is counted then, and
// deletes itself.
grpc::ServerReadReactor<training::v1::ImportCheckpointRequest>* StartImport(
    const ApiCall& call, grpc::CallbackServerContext* context, JobManager* jobs,
    CheckpointFiles* files, training::v1::ImportCheckpointResponse* response);

}  // namespace genesis
