#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/doctor/finding.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

// The checks of genesisctl doctor. Each checks one thing without changing anything, and returns
// findings. Every finding that is not good has a fix.
namespace genesis::cli {

// The folders and functions by which a machine is inspected. Tests replace them.
struct Host {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  // Returns true if the dynamic linker finds the library.
  std::function<bool(const char* library)> can_load;
  std::function<bool()> clock_is_synchronised;
};

// Checks for invalid or inconsistent settings, for the gate, and for misspelled names in
// `variables`, which are the names of all environment variables that are set.
Findings CheckSettings(const LoadedSettings& loaded, const std::vector<std::string>& variables);

// Checks the GPUs on the PCI bus, their driver, its libraries, and the permission to use them.
Findings CheckGpu(const Host& host);

// Starts the worker, which shows whether LibTorch is found and on which device it would train.
Findings CheckWorker(const Settings& settings);

// Checks free space, file system and permissions of each folder that the daemon writes to.
Findings CheckStorage(const Settings& settings);

// Checks that each address can be bound, or is in use by a daemon with this data folder.
Findings CheckPorts(const Settings& settings);

// Checks the limit of open files, memory, and clock synchronization.
Findings CheckSystem(const Settings& settings, const Host& host);

// Checks the running daemon: its readiness and its overflow rate.
Findings CheckDaemon(training::v1::TrainingService::StubInterface& service,
                     const std::string& server);

}  // namespace genesis::cli
