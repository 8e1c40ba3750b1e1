#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/doctor/finding.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

// The checks of genesisctl doctor. Each checks one thing, changes nothing, and adds a fix to every
// finding that is not good.
namespace genesis::cli {

// The places from which a machine is inspected; tests replace them.
struct Host {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  // Returns true if the dynamic linker finds the library.
  std::function<bool(const char* library)> can_load;
  std::function<bool()> clock_is_synchronised;
};

// Checks for values that are unreadable or inconsistent, for the gate, and for names that are
// nearly those of variables. `variables` are the names of all that are set.
Findings CheckSettings(const LoadedSettings& loaded, const std::vector<std::string>& variables);

// The GPUs on the bus, their driver, its libraries, the rights to use it.
Findings CheckGpu(const Host& host);

// Starts the worker program, which shows that LibTorch is found and on what device it would train.
Findings CheckWorker(const Settings& settings);

// Room, kind of file system and rights of each folder that the daemon writes to.
Findings CheckStorage(const Settings& settings);

// Each address can be listened on, or a daemon of this data folder holds it.
Findings CheckPorts(const Settings& settings);

// Open files, memory, synchronised clock.
Findings CheckSystem(const Settings& settings, const Host& host);

// The daemon that answers: its readiness, and its overflow rate.
Findings CheckDaemon(training::v1::TrainingService::StubInterface& service,
                     const std::string& server);

}  // namespace genesis::cli
