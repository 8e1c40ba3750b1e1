#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// Non-blocking listening sockets. Movable. The destructor closes them
// and removes the socket file.
class ListenSockets {
 public:
  ListenSockets() = default;
  ~ListenSockets() { Close(); }
  ListenSockets(ListenSockets&& other) noexcept { *this = std::move(other); }
  ListenSockets& operator=(ListenSockets&& other) noexcept;

  // Listens on "host:port": every address of the host's name, all on one port (0 picks a free one),
  // not shared with other processes. FAILED_PRECONDITION with the address and the cause.
  static absl::StatusOr<ListenSockets> Tcp(const std::string& address);
  // Listens on a socket file with that mode. Replaces a file left by a dead process.
  // FAILED_PRECONDITION if a process listens on it, or if it is not a socket.
  static absl::StatusOr<ListenSockets> Unix(const std::string& path, mode_t mode);

  const std::vector<int>& fds() const { return fds_; }
  int port() const { return port_; }  // 0 for a unix socket.
  void Close();

 private:
  std::vector<int> fds_;
  int port_ = 0;
  std::string file_;  // Removed by Close; empty for none.
};

}  // namespace genesis
