#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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
  // Ends the connection whose client gRPC calls `peer` ("ipv4:10.0.0.1:4711"). False when none has
  // that name, as connections of a unix socket have none. Any thread.
  bool Close(const std::string& peer);
  // Takes no more connections; those that were taken are not ours. Idempotent.
  void Stop();

 private:
  struct Connection {
    // The socket's, by which one that was closed since, and perhaps given to another file, is told
    // from one that is still open.
    uint64_t inode = 0;
    std::string peer;
  };
  struct Source {
    ListenSockets sockets;
    Take take;
  };
  void Loop();
  void AcceptFrom(int listener, const Take& take);
  void AcceptWithoutHandle(int listener);
  bool BelowMost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the connection may be given to gRPC; "" or why not.
  std::string Admit(int fd);

  const int max_connections_;
  const Refused refused_;
  std::vector<Source> sources_;
  HandleRoom handles_;
  absl::Mutex mutex_;
  // The connections that were taken, by handle.
  std::map<int, Connection> taken_ ABSL_GUARDED_BY(mutex_);
  int spare_fd_ = -1;
  int stop_fd_ = -1;  // An eventfd.
  std::thread thread_;
};

}  // namespace genesis
