#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metrics/machine_statistics.h"

namespace genesis {

// The GPUs as reported by NVIDIA's driver. NVML is loaded when needed, because
// a machine without GPUs does not have it. It creates no CUDA context. Owner:
// MachineMonitor. Threads: one at a time. Failure: Load returns why nothing
// can be measured; a metric that the driver does not report is unset. Calls
// take as long as the driver does.
class Nvml {
 public:
  struct Device {
    void* handle = nullptr;
    std::string name;  // Model, e.g. "NVIDIA H100 80GB HBM3".
    std::string uuid;  // "GPU-...".
  };

  // Loads NVML. NOT_FOUND if it is not installed, FAILED_PRECONDITION if it is unusable.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library);
  virtual ~Nvml() = default;

  // Returns the devices in the order of their PCI addresses.
  virtual const std::vector<Device>& devices() const = 0;
  // Reads the metrics of a device. `name` is the daemon's name for it.
  virtual GpuStatistics Read(const Device& device, const std::string& name) const = 0;
};

}  // namespace genesis
