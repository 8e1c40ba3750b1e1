#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "server/telemetry/nvml.h"

namespace genesis {

// Which of the driver's devices the daemon's are.
struct DeviceMatch {
  std::map<std::string, Nvml::Device> found;  // By the daemon's name.
  std::string problem;                        // Why some are not found; empty when all are.
};

// The driver counts by PCI address, CUDA by speed unless CUDA_DEVICE_ORDER says otherwise, and
// CUDA_VISIBLE_DEVICES chooses among these; workers inherit both variables. A device is found only
// where that leaves no doubt: figures of another one would be worse than none. `names` are those of
// the daemon; other kinds than "cuda:N" are passed over.
DeviceMatch MatchDevices(const std::vector<std::string>& names,
                         const std::vector<Nvml::Device>& devices, const Environment& environment);

}  // namespace genesis
