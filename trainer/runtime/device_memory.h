#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace genesis {

// The state of LibTorch's caching allocator for a device; all 0 on a CPU, which it does not
// serve. Bytes.
struct DeviceMemory {
  int64_t allocated = 0;  // In use.
  int64_t reserved = 0;   // Taken from the device, in use or kept for later.
  int64_t peak = 0;       // The most that was in use since ResetPeakMemory.
};

DeviceMemory ReadDeviceMemory(c10::Device device);
void ResetPeakMemory(c10::Device device);

}  // namespace genesis
