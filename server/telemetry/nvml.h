#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metrics/machine_statistics.h"

namespace genesis {

// The devices as reported by NVIDIA's driver.
// NVML is loaded when needed, because a machine without a GPU has none; it creates no CUDA context.
// Owner: MachineMonitor. Threads: one at a time. Failure: Load returns why there is nothing to
// measure; a metric that the driver does not report is absent. A call may take as long as the
// driver does.
class Nvml {
 public:
  struct Device {
    void* handle = nullptr;
    std::string name;  // Model, "NVIDIA H100 80GB HBM3".
    std::string uuid;  // "GPU-...".
  };

  // NOT_FOUND without the library, FAILED_PRECONDITION if it is not usable.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library);
  virtual ~Nvml() = default;

  // Ordered by PCI address.
  virtual const std::vector<Device>& devices() const = 0;
  // `name` is the daemon's name of the device.
  virtual GpuStatistics Read(const Device& device, const std::string& name) const = 0;
};

}  // namespace genesis
