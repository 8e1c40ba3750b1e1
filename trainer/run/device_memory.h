#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace genesis {

// What LibTorch's caching allocator holds on a device. 0 on a CPU, which it does not serve. Bytes.
int64_t AllocatedMemory(c10::Device device);
// The most it held since ResetPeakMemory.
int64_t PeakMemory(c10::Device device);
void ResetPeakMemory(c10::Device device);

}  // namespace genesis
