#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "server/telemetry/nvml.h"

namespace genesis {

// The driver's devices that belong to the daemon's devices.
struct DeviceMatch {
  std::map<std::string, Nvml::Device> found;  // Keyed by the daemon's name.
  std::string problem;                        // Why some are not found; empty if all are.
};

// Matches devices. The driver orders them by PCI address, CUDA by speed unless CUDA_DEVICE_ORDER
// says otherwise, and CUDA_VISIBLE_DEVICES selects some; workers inherit both variables. A device
// is matched only if the match is certain, because another device's metrics are worse than none.
// `names` are the daemon's names; any except "cuda:N" are skipped.
DeviceMatch MatchDevices(const std::vector<std::string>& names,
                         const std::vector<Nvml::Device>& devices, const Environment& environment);

}  // namespace genesis
