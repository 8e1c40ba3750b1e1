#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "server/telemetry/nvml.h"

namespace genesis {

// Maps the daemon's devices to the driver's.
struct DeviceMatch {
  std::map<std::string, Nvml::Device> found;  // Keyed by the daemon's name.
  std::string problem;                        // Reason why some are not found; empty if all are.
};

// The driver counts by PCI address, CUDA by speed unless CUDA_DEVICE_ORDER differs, and
// CUDA_VISIBLE_DEVICES selects among these; workers inherit both variables. A device is found only
// if the match is certain, because metrics of another device would be worse than none. `names` are
// those of the daemon; kinds other than "cuda:N" are skipped.
DeviceMatch MatchDevices(const std::vector<std::string>& names,
                         const std::vector<Nvml::Device>& devices, const Environment& environment);

}  // namespace genesis
