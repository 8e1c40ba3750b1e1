#pragma once

#include <string>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Serves one daemon as its worker: dials `daemon_address` ("unix:/path"), says Hello, waits for one
// job, runs it on the calling thread, reports it, and returns the exit code of the process:
//   kOk       the job ended and its end was sent, or the daemon had no job;
//   kFailure  the daemon cannot be reached, or the stream broke during the job: training stops at
//             the next step boundary without a checkpoint, for the claim may be another's by now.
// SIGTERM and SIGINT stop a job with a checkpoint. Call it when warm; signals must be blocked (see
// termination.h).
int RunAttached(const std::string& daemon_address, const std::string& worker_id,
                const training::v1::DeviceInfo& device);

}  // namespace genesis
