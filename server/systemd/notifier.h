#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/environment.h"

namespace genesis {

// Reports the state of the service to systemd, as sd_notify(3): one datagram to $NOTIFY_SOCKET.
// Sends nothing without that variable.
//
// Owner: the daemon. Threads: any. Failure: none; a state that cannot be sent is lost.
class Notifier {
 public:
  explicit Notifier(const Environment& environment);

  // Sends READY=1.
  void Ready(const std::string& status) const;
  // Sets the line shown by systemctl status.
  void Status(const std::string& status) const;
  // Lasts until the next Ready. Sends the time, which Type=notify-reload requires.
  void Reloading() const;
  // Extends the time that the service may take to end before systemd kills it.
  void Stopping(absl::Duration at_most) const;
  void Alive() const;

  // Returns the maximum interval of Alive; nullopt if systemd does not watch this process.
  std::optional<absl::Duration> watchdog() const { return watchdog_; }

 private:
  void Send(const std::string& state) const;

  std::string socket_;  // Empty for none.
  std::optional<absl::Duration> watchdog_;
};

}  // namespace genesis
