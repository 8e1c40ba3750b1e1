#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/environment.h"
#include "metrics/metrics.h"

namespace genesis {

// The monitor of the machine. Every few seconds, it measures the free space of file systems, and
// the driver's metrics of the GPUs that jobs run on.
//
// Owner: the daemon. Threads: the main thread for Start, Stop and HideStale. A separate
// thread measures, because a file system or a driver may be slow. Failure: a metric that
// cannot be read is hidden and the reason is logged once. Stop waits only a limited time for
// a measurement that hangs.
class MachineMonitor {
 public:
  struct Options {
    std::map<std::string, std::string> volumes;  // Folder of each volume, by its name in metrics.
    std::vector<std::string> devices;            // "cpu" or "cuda:0", ...; the latter need NVML.
    std::string nvml = "libnvidia-ml.so.1";
    Environment environment = &ProcessEnvironment;
    absl::Duration period = absl::Seconds(5);
  };

  MachineMonitor(Options options, Metrics* metrics);
  ~MachineMonitor() { Stop(); }

  void Start();
  // Stops the thread. Idempotent.
  void Stop();
  // Removes old measurements from the metrics.
  void HideStale();

 private:
  class Sampler;

  const std::shared_ptr<Sampler> sampler_;  // Shared with the thread, which may outlive Stop.
  std::thread thread_;
};

}  // namespace genesis
