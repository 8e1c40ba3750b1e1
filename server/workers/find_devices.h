#pragma once

#include <string>
#include <vector>

namespace genesis {

// Returns the names of the devices that jobs run on: `wanted` unchanged, none for {"none"}, or for
// {"auto"} every CUDA device that NVIDIA's driver lists below `driver`, otherwise the CPU. Opens no
// device: the daemon never creates a CUDA context.
std::vector<std::string> FindDevices(const std::vector<std::string>& wanted,
                                     const std::string& driver = "/proc/driver/nvidia/gpus");

}  // namespace genesis
