#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace genesis {
namespace {

// Maximum connections accepted before another listener has its turn.
constexpr int kMaxAtOnce = 64;
constexpr absl::Duration kPause = absl::Milliseconds(10);

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// Returns the inode of a socket; 0 if the descriptor is not an open socket.
uint64_t InodeOf(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// Returns the client of a connection in gRPC's format: a URI, with an IPv4 address even if an IPv6
// socket accepted it. Empty for a unix socket, whose clients have no name.
std::string PeerOf(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getpeername(fd, generic, &length) != 0 || address.ss_family == AF_UNIX ||
      getnameinfo(generic, length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  absl::string_view name = host;
  const bool mapped = absl::ConsumePrefix(&name, "::ffff:") && absl::StrContains(name, '.');
  if (address.ss_family == AF_INET || mapped) return absl::StrCat("ipv4:", name, ":", port);
  return absl::StrCat("ipv6:%5B", absl::StrReplaceAll(host, {{"%", "%25"}}), "%5D:", port);
}

}  // namespace

ConnectionAcceptor::ConnectionAcceptor(int max_connections, Refused refused)
    : max_connections_(max_connections), refused_(std::move(refused)) {}

void ConnectionAcceptor::Add(ListenSockets sockets, Take take) {
  sources_.push_back({std::move(sockets), std::move(take)});
}

void ConnectionAcceptor::Start() {
  spare_fd_ = OpenSpare();
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Loop(); });
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_fd_, 1);
    thread_.join();
    close(stop_fd_);
    if (spare_fd_ >= 0) close(spare_fd_);
  }
  sources_.clear();
}

void ConnectionAcceptor::Loop() {
  std::vector<pollfd> waiting = {{stop_fd_, POLLIN, 0}};
  std::vector<const Take*> takers = {nullptr};
  for (const Source& source : sources_) {
    for (const int fd : source.sockets.fds()) {
      waiting.push_back({fd, POLLIN, 0});
      takers.push_back(&source.take);
    }
  }
  for (;;) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[0].revents != 0) return;
    for (size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) AcceptFrom(waiting[i].fd, *takers[i]);
    }
  }
}

void ConnectionAcceptor::AcceptFrom(int listener, const Take& take) {
  for (int i = 0; i < kMaxAtOnce; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) return AcceptWithoutHandle(listener);
    if (fd < 0 && (errno == ENOBUFS || errno == ENOMEM)) return absl::SleepFor(kPause);
    if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (fd < 0) continue;  // The connection has already ended.
    const std::string problem = Admit(fd);
    if (problem.empty()) {
      take(fd);
    } else {
      // Count first, so that the count is correct once the client sees its connection closed.
      refused_(problem);
      close(fd);
    }
  }
}

std::string ConnectionAcceptor::Admit(int fd) {
  absl::MutexLock lock(&mutex_);
  if (!BelowMost()) return "max_connections";
  if (!handles_.HasRoom()) return "file_handles";
  taken_[fd] = {InodeOf(fd), PeerOf(fd)};
  return "";
}

bool ConnectionAcceptor::Close(const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  for (auto& [fd, connection] : taken_) {
    if (connection.peer != peer || InodeOf(fd) != connection.inode) continue;
    connection.peer.clear();
    // Unlike shutdown(2), this also drops unread data. gRPC, which owns the descriptor, finds the
    // connection broken and closes it.
    const sockaddr unspecified = {.sa_family = AF_UNSPEC, .sa_data = {}};
    connect(fd, &unspecified, sizeof(unspecified));
    return true;
  }
  return false;
}

// Called when other code has taken the last descriptor. Closes the spare one for a moment, so that
// the client is refused instead of left waiting.
void ConnectionAcceptor::AcceptWithoutHandle(int listener) {
  if (spare_fd_ >= 0) close(spare_fd_);
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) {
    refused_("file_handles");
    close(fd);
  }
  spare_fd_ = OpenSpare();
  if (spare_fd_ < 0) absl::SleepFor(kPause);
}

bool ConnectionAcceptor::BelowMost() {
  if (static_cast<int>(taken_.size()) < max_connections_) return true;
  std::erase_if(taken_, [](const auto& each) { return InodeOf(each.first) != each.second.inode; });
  return static_cast<int>(taken_.size()) < max_connections_;
}

}  // namespace genesis
