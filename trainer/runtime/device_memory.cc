#include "trainer/runtime/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace genesis {

DeviceMemory ReadDeviceMemory(c10::Device device) {
  if (!device.is_cuda()) return {};
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.allocated = stats.allocated_bytes[kAll].current,
          .reserved = stats.reserved_bytes[kAll].current,
          .peak = stats.allocated_bytes[kAll].peak};
}

void ResetPeakMemory(c10::Device device) {
  if (device.is_cuda()) at::getDeviceAllocator(at::kCUDA)->resetPeakStats(device.index());
}

}  // namespace genesis
