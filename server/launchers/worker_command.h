#pragma once

#include <string>
#include <vector>

#include "config/settings/settings.h"

namespace genesis {

// The command line of every worker of a cluster, except its reservation.
struct WorkerCommand {
  LauncherSettings settings;    // Must have daemon_address and worker_program.
  std::string checkpoints_dir;  // At the same path on the worker's host.
};

// Returns the program and its arguments for a worker of the reservation. They contain no secret.
std::vector<std::string> WorkerWords(const WorkerCommand& command, const std::string& reservation,
                                     int threads);

// Returns the address at which workers of other hosts reach the daemon: `given`, or otherwise the
// listen address, with this host's name if it listens on every address.
std::string DaemonAddressFor(const std::string& given, const std::string& listens);

}  // namespace genesis
