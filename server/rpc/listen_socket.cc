#include "server/rpc/listen_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "config/settings/listen_address.h"

namespace genesis {
namespace {

constexpr int kBacklog = 1024;

absl::Status BindError(const std::string& address, const std::string& cause) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address, ": ", cause,
                   "; stop what uses it, or choose another with --grpc-listen"));
}

absl::Status SocketError(const std::string& path, const std::string& cause) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on the unix socket ", path, ": ",
                                                    cause,
                                                    "; choose another with --grpc-unix-socket"));
}

// Returns the listening socket, or -1 with errno set.
int Listen(const addrinfo& where, int* port) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Accepted connections inherit TCP_NODELAY: responses are small, and clients wait for them.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_storage address = {};
  memcpy(&address, where.ai_addr, where.ai_addrlen);
  // The port is at the same offset in both address types.
  reinterpret_cast<sockaddr_in*>(&address)->sin_port = htons(static_cast<uint16_t>(*port));
  if (where.ai_family == AF_INET6) {
    // [::] also serves IPv4, as users expect; an IPv4 address of a name gets its own socket.
    const int v6_only =
        IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(where.ai_addr)->sin6_addr)
            ? 0
            : 1;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  socklen_t length = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), where.ai_addrlen) != 0 ||
      listen(fd, kBacklog) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  *port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return fd;
}

// Returns "" if a socket file can be created at `path`. Removes one left by a dead process.
std::string ClearSocketFile(const std::string& path, const sockaddr_un& address) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT ? "" : strerror(errno);
  if (!S_ISSOCK(info.st_mode)) return "there is a file of that name that is no socket";
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  close(fd);
  // Any result except a refusal, such as a full backlog, means that a process is listening.
  if (connected == 0 || error != ECONNREFUSED) return "another process listens on it";
  return unlink(path.c_str()) == 0 ? "" : strerror(errno);
}

}  // namespace

ListenSockets& ListenSockets::operator=(ListenSockets&& other) noexcept {
  std::swap(fds_, other.fds_);
  std::swap(port_, other.port_);
  std::swap(file_, other.file_);
  return *this;
}

void ListenSockets::Close() {
  for (const int fd : fds_) close(fd);
  fds_.clear();
  if (!file_.empty()) unlink(file_.c_str());
  file_.clear();
}

absl::StatusOr<ListenSockets> ListenSockets::Tcp(const std::string& address) {
  const std::optional<HostPort> where = ParseHostPort(address);
  if (!where.has_value()) return BindError(address, "it is not host:port");
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(where->host.c_str(), "0", &hints, &found);
  if (error != 0) return BindError(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  ListenSockets sockets;
  sockets.port_ = where->port;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int fd = Listen(*each, &sockets.port_);
    // "localhost" may resolve to an IPv6 address even if the kernel has no IPv6.
    if (fd < 0 && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) &&
        (each->ai_next != nullptr || !sockets.fds_.empty())) {
      continue;
    }
    if (fd < 0) return BindError(address, strerror(errno));
    sockets.fds_.push_back(fd);
  }
  return sockets;
}

absl::StatusOr<ListenSockets> ListenSockets::Unix(const std::string& path, mode_t mode) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return SocketError(path, absl::StrCat("its path has ", path.size(), " characters and at most ",
                                          sizeof(address.sun_path) - 1, " fit"));
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const std::string problem = ClearSocketFile(path, address);
  if (!problem.empty()) return SocketError(path, problem);
  ListenSockets sockets;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SocketError(path, strerror(errno));
  sockets.fds_.push_back(fd);
  // Set before bind, so that the file is never more permissive than requested.
  fchmod(fd, mode);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return SocketError(path, strerror(errno));
  }
  sockets.file_ = path;
  // Set again after bind, because the umask may have restricted it.
  if (chmod(path.c_str(), mode) != 0 || listen(fd, kBacklog) != 0) {
    return SocketError(path, strerror(errno));
  }
  return sockets;
}

}  // namespace genesis
