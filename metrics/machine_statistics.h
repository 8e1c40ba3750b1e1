#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace genesis {

// One device at one moment, as reported by its driver. A missing number is absent.
struct GpuStatistics {
  std::string device;  // The daemon's name, "cuda:0".
  std::optional<int64_t> memory_used_bytes = std::nullopt;
  std::optional<int64_t> memory_total_bytes = std::nullopt;
  std::optional<double> utilization_ratio = std::nullopt;
  std::optional<double> power_watts = std::nullopt;
  std::optional<double> temperature_celsius = std::nullopt;
  std::vector<std::string> throttle_reasons = {};  // Only the active ones.
};

// Bytes of a file system.
struct VolumeStatistics {
  int64_t free = 0;  // Bytes that this user may still write.
  int64_t size = 0;
};

}  // namespace genesis
