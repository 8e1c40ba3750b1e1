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

// Measures the machine every few seconds: what is free on the file systems, and what the driver
// says of the GPUs that jobs run on.
//
// Owner: the daemon. Threads: Start, Stop and HideStale from its main one; it measures on one of
// its own, for a file system or a driver may take long to answer. Failure: a figure that cannot be
// had is not shown; why is logged once. Stop waits only a while for a measurement that hangs.
class MachineMonitor {
 public:
  struct Options {
    std::map<std::string, std::string> volumes;  // A folder on each, by its name in metrics.
    std::vector<std::string> devices;            // "cpu", "cuda:0"; NVML is loaded for the latter.
    std::string nvml = "libnvidia-ml.so.1";
    Environment environment = &ProcessEnvironment;
    absl::Duration period = absl::Seconds(5);
  };

  MachineMonitor(Options options, Metrics* metrics);
  ~MachineMonitor() { Stop(); }

  void Start();
  // Idempotent.
  void Stop();
  // Takes what was measured long ago out of the metrics.
  void HideStale();

 private:
  class Sampler;

  const std::shared_ptr<Sampler> sampler_;  // Outlives a measurement that hangs.
  std::thread thread_;
};

}  // namespace genesis
