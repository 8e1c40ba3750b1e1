#include "server/systemd/notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text/scalars.h"

namespace genesis {
namespace {

// Returns the text as a single line, as systemd's protocol requires.
std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", "; "}}); }

}  // namespace

Notifier::Notifier(const Environment& environment)
    : socket_(environment("NOTIFY_SOCKET").value_or("")) {
  if (socket_.empty()) return;
  const std::optional<int64_t> pid = ParseInt64(environment("WATCHDOG_PID").value_or(""));
  const std::optional<int64_t> period = ParseInt64(environment("WATCHDOG_USEC").value_or(""));
  // The variables are inherited, so the watchdog may be meant for another process.
  const bool ours = !pid.has_value() || *pid == getpid();
  if (ours && period.has_value() && *period > 0) watchdog_ = absl::Microseconds(*period);
}

void Notifier::Ready(const std::string& status) const {
  Send(absl::StrCat("READY=1\nSTATUS=", OneLine(status)));
}

void Notifier::Status(const std::string& status) const {
  Send(absl::StrCat("STATUS=", OneLine(status)));
}

void Notifier::Reloading() const {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  Send(absl::StrCat(
      "RELOADING=1\nMONOTONIC_USEC=", absl::ToInt64Microseconds(absl::DurationFromTimespec(now)),
      "\nSTATUS=Reading the configuration again"));
}

void Notifier::Stopping(absl::Duration at_most) const {
  Send(absl::StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=", absl::ToInt64Microseconds(at_most),
                    "\nSTATUS=Draining: running jobs write a checkpoint"));
}

void Notifier::Alive() const { Send("WATCHDOG=1"); }

void Notifier::Send(const std::string& state) const {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  memcpy(address.sun_path, socket_.data(), socket_.size());
  // '@' stands for the NUL byte of an abstract socket, which has no file.
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  // MSG_DONTWAIT, so that a service manager that does not read cannot block the daemon.
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
}

}  // namespace genesis
