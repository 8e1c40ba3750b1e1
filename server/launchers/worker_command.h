#pragma once

#include <string>
#include <vector>

#include "config/settings/settings.h"

namespace genesis {

// The command line of a cluster's workers, except their reservation.
struct WorkerCommand {
  LauncherSettings settings;    // Must have daemon_address and worker_program.
  std::string checkpoints_dir;  // The same path on the worker's host.
};

// Returns program and arguments of a worker for `reservation`. They contain no secret.
std::vector<std::string> WorkerWords(const WorkerCommand& command, const std::string& reservation,
                                     int threads);

// Returns the address at which workers of other hosts reach the daemon: `given`, or if it is empty
// the listen address, with this host's name if the daemon listens on all addresses.
std::string DaemonAddressFor(const std::string& given, const std::string& listens);

}  // namespace genesis
