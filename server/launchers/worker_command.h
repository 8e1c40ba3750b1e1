#pragma once

#include <string>
#include <vector>

#include "config/settings/settings.h"

namespace genesis {

// The command line of every worker of a cluster, but for its reservation.
struct WorkerCommand {
  LauncherSettings settings;    // With daemon_address and worker_program.
  std::string checkpoints_dir;  // At the same path on its host.
};

// The program and its arguments, for a worker of the reservation. No secret is among them.
std::vector<std::string> WorkerWords(const WorkerCommand& command, const std::string& reservation,
                                     int threads);

// Where workers of other hosts reach the daemon: `given`, or else the address that it listens on,
// with the name of this host where that is every address.
std::string DaemonAddressFor(const std::string& given, const std::string& listens);

}  // namespace genesis
