#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/environment.h"

namespace genesis {

// A sender of the service's state to systemd, as by sd_notify(3): one datagram to
// $NOTIFY_SOCKET. Does nothing if the variable is not set.
//
// Owner: the daemon. Threads: any. Failure: none. A state that cannot be sent is lost.
class Notifier {
 public:
  explicit Notifier(const Environment& environment);

  // Reports that the service is ready, with a status text for systemctl status.
  void Ready(const std::string& status) const;
  // Sets the status text that systemctl status shows.
  void Status(const std::string& status) const;
  // Reports a reload, until the next Ready. Sends the time, which Type=notify-reload requires.
  void Reloading() const;
  // Reports the stop, and extends the time in which the service must exit before it is killed.
  void Stopping(absl::Duration at_most) const;
  void Alive() const;

  // Returns the maximum time between Alive calls; nullopt if systemd does not watch this process.
  std::optional<absl::Duration> watchdog() const { return watchdog_; }

 private:
  void Send(const std::string& state) const;

  std::string socket_;  // Empty for none.
  std::optional<absl::Duration> watchdog_;
};

}  // namespace genesis
