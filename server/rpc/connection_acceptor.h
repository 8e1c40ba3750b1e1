#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/rpc/file_handles.h"
#include "server/rpc/listen_socket.h"

namespace genesis {

// Takes connections for gRPC, whose own listeners stop accepting for good once the process has run
// out of file handles (seen with 1.51). A connection too many is closed at once, so that its client
// may try elsewhere or again, and the next one is served as soon as there is room.
//
// Owner: TrainingListener. Threads: one of its own, which calls `take` and `refused`. Failure: none
// after the start; what the kernel refuses is tried again.
class ConnectionAcceptor {
 public:
  // Takes over a connected socket.
  using Take = std::function<void(int fd)>;
  // Told of each connection that is closed at once, just before: "file_handles" or
  // "max_connections".
  using Refused = std::function<void(const std::string& reason)>;

  ConnectionAcceptor(int max_connections, Refused refused);
  ~ConnectionAcceptor() { Stop(); }
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // Before Start.
  void Add(ListenSockets sockets, Take take);
  void Start();
  // Takes no more connections; those that were taken are not ours. Idempotent.
  void Stop();

 private:
  struct Source {
    ListenSockets sockets;
    Take take;
  };
  void Loop();
  void AcceptFrom(int listener, const Take& take);
  void AcceptWithoutHandle(int listener);
  bool BelowMost();

  const int max_connections_;
  const Refused refused_;
  std::vector<Source> sources_;
  HandleRoom handles_;
  // The connections that were taken, by handle: the socket's inode, by which one that was
  // closed since, and perhaps given to another file, is told from one that is still open.
  std::map<int, uint64_t> taken_;
  int spare_fd_ = -1;
  int stop_fd_ = -1;  // An eventfd.
  std::thread thread_;
};

}  // namespace genesis
