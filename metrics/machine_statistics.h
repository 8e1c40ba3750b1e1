#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace genesis {

// The metrics of one GPU at one moment, from its driver. Values that it did not report are unset.
struct GpuStatistics {
  std::string device;  // The daemon's name, e.g. "cuda:0".
  std::optional<int64_t> memory_used_bytes = std::nullopt;
  std::optional<int64_t> memory_total_bytes = std::nullopt;
  std::optional<double> utilization_ratio = std::nullopt;
  std::optional<double> power_watts = std::nullopt;
  std::optional<double> temperature_celsius = std::nullopt;
  std::vector<std::string> throttle_reasons = {};  // Only the active ones.
};

// Sizes of a file system in bytes.
struct VolumeStatistics {
  int64_t free = 0;  // Available to the daemon's user.
  int64_t size = 0;
};

}  // namespace genesis
