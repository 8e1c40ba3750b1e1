#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/doctor/finding.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

// The checks of genesisctl doctor. Each looks at one thing, changes nothing, and says with every
// finding that is not good what to do about it.
namespace genesis::cli {

// Where a machine tells about itself; tests have one of their own making.
struct Host {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  // Whether the dynamic linker finds a library.
  std::function<bool(const char* library)> can_load;
  std::function<bool()> clock_is_synchronised;
};

// Values that cannot be read or that do not fit together, the gate, names that are nearly those of
// variables. `variables` are the names of all that are set.
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
