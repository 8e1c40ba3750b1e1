#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/environment.h"

namespace genesis {

// Tells systemd how the service is, as sd_notify(3): one datagram to $NOTIFY_SOCKET. Without that
// variable nothing is sent.
//
// Owner: the daemon. Threads: any. Failure: none; a state that cannot be sent is lost.
class Notifier {
 public:
  explicit Notifier(const Environment& environment);

  // READY=1 after it is true.
  void Ready(const std::string& status) const;
  // The line that systemctl status shows.
  void Status(const std::string& status) const;
  // Until the next Ready. With the moment, which Type=notify-reload asks for.
  void Reloading() const;
  // The service may take that long to end before systemd ends it.
  void Stopping(absl::Duration at_most) const;
  void Alive() const;

  // How often systemd wants to hear Alive, at least; nullopt when it does not watch this process.
  std::optional<absl::Duration> watchdog() const { return watchdog_; }

 private:
  void Send(const std::string& state) const;

  std::string socket_;  // Empty for none.
  std::optional<absl::Duration> watchdog_;
};

}  // namespace genesis
