#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// Sockets that listen, without blocking. Movable; closes them and removes the socket's file.
class ListenSockets {
 public:
  ListenSockets() = default;
  ~ListenSockets() { Close(); }
  ListenSockets(ListenSockets&& other) noexcept { *this = std::move(other); }
  ListenSockets& operator=(ListenSockets&& other) noexcept;

  // "host:port": every address that the host's name has, all on one port (0 picks one). Shares it
  // with no other process. FAILED_PRECONDITION naming the address and the cause.
  static absl::StatusOr<ListenSockets> Tcp(const std::string& address);
  // A socket file with that mode. A file that a dead process left is replaced; FAILED_PRECONDITION
  // when somebody listens on it, or when it is no socket.
  static absl::StatusOr<ListenSockets> Unix(const std::string& path, mode_t mode);

  const std::vector<int>& fds() const { return fds_; }
  int port() const { return port_; }  // 0 for a unix socket.
  void Close();

 private:
  std::vector<int> fds_;
  int port_ = 0;
  std::string file_;  // To be removed; empty for none.
};

}  // namespace genesis
