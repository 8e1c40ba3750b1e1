#pragma once

#include <string>
#include <vector>

namespace genesis {

// Returns the devices that jobs run on. {"auto"} means every CUDA device that NVIDIA's driver lists
// below `driver`, or the CPU if there is none; {"none"} means no device; other lists are returned
// unchanged. Opens no device: the daemon never creates a CUDA context.
std::vector<std::string> FindDevices(const std::vector<std::string>& wanted,
                                     const std::string& driver = "/proc/driver/nvidia/gpus");

}  // namespace genesis
