#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace genesis {
namespace {

// Before another listener has its turn.
constexpr int kMaxAtOnce = 64;
constexpr absl::Duration kPause = absl::Milliseconds(10);

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// 0 when the handle is not open.
uint64_t InodeOf(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
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
    if (fd < 0) continue;  // That connection has ended already.
    const bool below_most = BelowMost();
    if (below_most && handles_.HasRoom()) {
      taken_[fd] = InodeOf(fd);
      take(fd);
    } else {
      // Told first: who sees the end of its connection finds it counted.
      refused_(below_most ? "file_handles" : "max_connections");
      close(fd);
    }
  }
}

// Another part of the process has taken the last handle. The spare one is given up for a moment, to
// tell the client so instead of letting it wait.
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
  std::erase_if(taken_, [](const auto& each) { return InodeOf(each.first) != each.second; });
  return static_cast<int>(taken_.size()) < max_connections_;
}

}  // namespace genesis
