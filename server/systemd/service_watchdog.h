#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/systemd/notifier.h"
#include "server/systemd/self_probe.h"

namespace genesis {

// The watchdog of the systemd unit (WatchdogSec=), fed only while the daemon passes its own probe.
//
// Owner: the daemon. Threads: the main thread; the probe has its own. Failure: none.
class ServiceWatchdog {
 public:
  explicit ServiceWatchdog(const Notifier& notifier) : notifier_(notifier) {}

  // Starts the probe if systemd watches this process. See SelfProbe::Options for the arguments.
  void Start(const std::string& grpc_address, bool tls,
             std::function<void(std::function<void()> alive)> ask_writer);
  // Reports a sign of life if a probe has succeeded since the last one.
  void Feed();
  // Ends the probe. Idempotent.
  void Stop();

 private:
  const Notifier& notifier_;
  std::unique_ptr<SelfProbe> probe_;  // Null without a watchdog.
  absl::Time fed_ = absl::InfinitePast();
};

}  // namespace genesis
