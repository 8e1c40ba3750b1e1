#include "trainer/run/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace genesis {
namespace {

c10::CachingAllocator::Stat AllocatedBytes(c10::Device device) {
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

int64_t AllocatedMemory(c10::Device device) {
  return device.is_cuda() ? AllocatedBytes(device).current : 0;
}

int64_t PeakMemory(c10::Device device) {
  return device.is_cuda() ? AllocatedBytes(device).peak : 0;
}

void ResetPeakMemory(c10::Device device) {
  if (device.is_cuda()) at::getDeviceAllocator(at::kCUDA)->resetPeakStats(device.index());
}

}  // namespace genesis
