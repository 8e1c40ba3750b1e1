#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "metrics/machine_statistics.h"

namespace genesis {

// The devices as NVIDIA's driver describes them.
// Purpose: NVML is loaded when it is needed, for a machine without a GPU has none; it opens no CUDA
// context. Owner: MachineMonitor. Threads: one at a time. Failure: Load says why there is nothing
// to measure; a figure that the driver does not give is absent. A call may take as long as the
// driver does.
class Nvml {
 public:
  struct Device {
    void* handle = nullptr;
    std::string name;  // Model, "NVIDIA H100 80GB HBM3".
    std::string uuid;  // "GPU-...".
  };

  // NOT_FOUND without the library, FAILED_PRECONDITION when it is not usable.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load(const std::string& library);
  virtual ~Nvml() = default;

  // In the order of their PCI addresses.
  virtual const std::vector<Device>& devices() const = 0;
  // `name` is what the daemon calls it.
  virtual GpuStatistics Read(const Device& device, const std::string& name) const = 0;
};

}  // namespace genesis
