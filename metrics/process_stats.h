#pragma once

#include <optional>
#include <string>

namespace genesis {

// This process's metrics, as reported by the kernel. Values that cannot be read are unset.
struct ProcessStats {
  std::optional<double> cpu_seconds;
  std::optional<double> resident_bytes;
  std::optional<double> open_fds;
  std::optional<double> max_fds;
  std::optional<double> start_time_seconds;  // Since the Unix epoch.
};

// Reads `proc`/self and `proc`/stat. Never fails. Thread-safe.
ProcessStats ReadProcessStats(const std::string& proc = "/proc");

}  // namespace genesis
