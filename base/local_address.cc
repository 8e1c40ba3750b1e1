#include "base/local_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace genesis {

absl::StatusOr<std::string> LocalAddressTo(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // A datagram socket that is connected has chosen its route, and has sent nothing. Any port will
  // do.
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
    char text[NI_MAXHOST] = {};
    const bool routed = fd >= 0 && connect(fd, each->ai_addr, each->ai_addrlen) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text),
                                    nullptr, 0, NI_NUMERICHOST) == 0;
    error = errno;
    if (fd >= 0) close(fd);
    if (routed) return text;
  }
  return absl::UnavailableError(
      absl::StrCat("no route leads to host ", host, ": ", strerror(error)));
}

}  // namespace genesis
