#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one ImportCheckpoint call. It reads a message, writes its content on a
// thread that may block on the disk, and only then reads the next. Finishes when the checkpoint is
// recorded, at the first error, on cancel, or at server shutdown. Then the call is counted and the
// reactor deletes itself.
grpc::ServerReadReactor<training::v1::ImportCheckpointRequest>* StartImport(
    const ApiCall& call, grpc::CallbackServerContext* context, JobManager* jobs,
    CheckpointFiles* files, training::v1::ImportCheckpointResponse* response);

}  // namespace genesis
