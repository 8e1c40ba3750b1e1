#include "base/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// Returns the numeric address, or "" for another address family.
std::string AddressText(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET    ? sizeof(sockaddr_in)
                         : address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                          : 0;
  char text[NI_MAXHOST] = {};
  if (size == 0 ||
      getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

}  // namespace

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name = {};
  if (gethostname(name.data(), HOST_NAME_MAX) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

absl::StatusOr<std::string> LocalAddressTo(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // connect() on a datagram socket selects the route and sends nothing. Any port will do.
  if (const int fault = getaddrinfo(host.c_str(), "9", &hints, &found); fault != 0) {
    return absl::UnavailableError(
        absl::StrCat("host ", host, " has no address: ", gai_strerror(fault)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int fd = socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    const bool routed = fd >= 0 && connect(fd, each->ai_addr, each->ai_addrlen) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    error = errno;
    if (fd >= 0) close(fd);
    if (!routed) continue;
    if (std::string text = AddressText(reinterpret_cast<sockaddr*>(&own)); !text.empty()) {
      return text;
    }
  }
  return absl::UnavailableError(
      absl::StrCat("no route leads to host ", host, ": ", strerror(error)));
}

std::string InterfaceOf(const std::string& address) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && AddressText(each->ifa_addr) == address) return each->ifa_name;
  }
  return "";
}

}  // namespace genesis
