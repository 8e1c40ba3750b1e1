#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace genesis {

// The state of LibTorch's caching allocator for a device, in bytes. All 0 on a CPU, which it does
// not serve.
struct DeviceMemory {
  int64_t allocated = 0;  // In use.
  int64_t reserved = 0;   // Allocated from the device, in use or cached.
  int64_t peak = 0;       // Maximum in use since ResetPeakMemory.
};

DeviceMemory ReadDeviceMemory(c10::Device device);
void ResetPeakMemory(c10::Device device);

}  // namespace genesis
