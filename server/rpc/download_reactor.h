#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one DownloadCheckpoint call. Each piece is read, on a thread that may block
// on the disk, when the previous one has been written, so a slow client costs 1 MiB but no thread.
// Finishes at the end of the file, at an error, on cancel, or at server shutdown. Then the call is
// counted and the reactor deletes itself.
grpc::ServerWriteReactor<training::v1::DownloadCheckpointResponse>* StartDownload(
    const ApiCall& call, JobManager* jobs, CheckpointFiles* files,
    const training::v1::DownloadCheckpointRequest& request);

}  // namespace genesis
