#pragma once

#include <grpcpp/grpcpp.h>

#include "genesis/training/v1/training_service.grpc.pb.h"
#include "server/api/api_gate.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// Starts the reactor of one DownloadCheckpoint call. A piece is read, on a thread that may block on
// the disk, when the previous one is written: a slow client costs no thread and 1 MiB. Finishes at
// the end of the file, at an error, on cancel, or when the server shuts down. Then it is counted
// and deletes itself.
grpc::ServerWriteReactor<training::v1::DownloadCheckpointResponse>* StartDownload(
    const ApiCall& call, JobManager* jobs, CheckpointFiles* files,
    const training::v1::DownloadCheckpointRequest& request);

}  // namespace genesis
