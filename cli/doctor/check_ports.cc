#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/doctor/checks.h"
#include "config/settings/listen_address.h"

namespace genesis::cli {
namespace {

constexpr char kPorts[] = "ports";

// Returns 0 if the address can be bound, otherwise errno; nullopt if the host has no address.
std::optional<int> TryBind(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
      0) {
    return std::nullopt;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const int error = bind(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  freeaddrinfo(found);
  return error;
}

// Returns the pid of the daemon with this data folder if it listens on the port; 0 for none.
int HolderOf(const std::string& data_dir, const std::string& protocol, int port) {
  std::ifstream file(data_dir + "/run/endpoints");
  bool listens = false;
  int pid = 0;
  for (std::string line; std::getline(file, line);) {
    listens |=
        absl::StartsWith(line, protocol + ": ") && absl::EndsWith(line, absl::StrCat(":", port));
    if (absl::StartsWith(line, "pid: ")) (void)absl::SimpleAtoi(line.substr(5), &pid);
  }
  const bool alive = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
  return listens && alive ? pid : 0;
}

Finding CheckPort(const std::string& protocol, const std::string& key, const std::string& text,
                  const std::string& data_dir) {
  const std::string what = absl::StrCat(key, " ", text);
  const std::optional<HostPort> address = ParseHostPort(text);
  if (!address) return Problem(kPorts, what + " is not an address", "give host:port");
  const std::optional<int> error = TryBind(*address);
  if (!error) {
    return Problem(kPorts, what + ": this machine does not know the host",
                   "give an address of this machine");
  }
  if (*error == 0) return Good(kPorts, what + " is free");
  if (*error == EADDRINUSE) {
    if (const int pid = HolderOf(data_dir, protocol, address->port); pid != 0) {
      return Good(kPorts, absl::StrCat(what, " is held by genesisd, process ", pid));
    }
    return Problem(kPorts, what + " is in use by another program",
                   absl::StrCat("end that one (ss -ltnp 'sport = :", address->port,
                                "' names it), or give another port"));
  }
  return Problem(kPorts, absl::StrCat(what, " cannot be listened on: ", strerror(*error)),
                 "give an address of this machine and a port of 1024 or more");
}

}  // namespace

Findings CheckPorts(const Settings& settings) {
  return {CheckPort("grpc", "grpc.listen", settings.grpc.listen, settings.data_dir),
          CheckPort("http", "http.listen", settings.http.listen, settings.data_dir)};
}

}  // namespace genesis::cli
