#pragma once

#include <string>

#include "client/channel.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The daemon that a worker serves, and how the worker identifies itself there.
struct DaemonToServe {
  DaemonAddress address;  // "unix:/path", or "HOST:PORT" with credentials.
  // The name that the daemon gave this process; empty if the daemon did not start the process.
  std::string worker_id;
  // The daemon's checkpoint folder as this host sees it; for a worker without worker_id.
  std::string checkpoint_dir;

  // The name under which the daemon requested the worker from a cluster for one job. Such a worker
  // waits through restarts of the daemon. Empty otherwise.
  std::string reservation;

  bool remote() const { return worker_id.empty(); }
};

// Serves one daemon as its worker: connects, sends Hello, waits for one job, runs it on the calling
// thread, reports it, and returns the exit code of the process:
//   kOk       the job ended and its end was sent, or the daemon had no job;
//   kUsage    the address or its credentials cannot be used;
//   kFailure  the daemon cannot be reached, or refuses the worker, or was lost for longer than the
//             job's patience; with a reservation, for ten minutes before there was a job.
// SIGTERM and SIGINT stop a job with a checkpoint. Call RunAttached after WarmUp; signals must be
// blocked (see termination.h).
int RunAttached(const DaemonToServe& daemon, const training::v1::DeviceInfo& device);

}  // namespace genesis
