#pragma once

#include <string>
#include <vector>

namespace genesis {

// Names of the devices that jobs run on: `wanted` as it is, none for {"none"}, or for {"auto"}
// every CUDA device that NVIDIA's driver shows beneath `driver`, else the processor. Opens no
// device: the daemon never makes a CUDA context.
std::vector<std::string> FindDevices(const std::vector<std::string>& wanted,
                                     const std::string& driver = "/proc/driver/nvidia/gpus");

}  // namespace genesis
