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

// A listener in place of gRPC's own ones, which stop accepting permanently once the process has
// run out of file descriptors (seen with 1.51). A connection over the limit is closed immediately,
// so that its client can retry. Later connections are served as soon as there is room.
//
// Owner: Training-, Worker- or WeightsListener. Threads: its own; it calls `take` and `refused`.
// Failure: none after the start; kernel errors are retried.
class ConnectionAcceptor {
 public:
  // Takes over the ownership of a connected socket.
  using Take = std::function<void(int fd)>;
  // Called just before a refused connection is closed, with the reason: "file_handles" or
  // "max_connections".
  using Refused = std::function<void(const std::string& reason)>;

  ConnectionAcceptor(int max_connections, Refused refused);
  ~ConnectionAcceptor() { Stop(); }
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // Must be called before Start.
  void Add(ListenSockets sockets, Take take);
  void Start();
  // Ends the connection whose client gRPC names `peer` ("ipv4:10.0.0.1:4711"). Returns false if
  // there is none; connections of a unix socket have no name. Any thread.
  bool Close(const std::string& peer);
  // Stops accepting connections. Accepted ones belong to gRPC. Idempotent.
  void Stop();

 private:
  struct Connection {
    // Inode of the socket. Distinguishes an open connection from a closed one
    // whose descriptor was reused.
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
  // Returns "" if the connection may be passed to gRPC, otherwise the reason to refuse it.
  std::string Admit(int fd);

  const int max_connections_;
  const Refused refused_;
  std::vector<Source> sources_;
  HandleRoom handles_;
  absl::Mutex mutex_;
  // Accepted connections, by file descriptor.
  std::map<int, Connection> taken_ ABSL_GUARDED_BY(mutex_);
  int spare_fd_ = -1;
  int stop_fd_ = -1;  // An eventfd that wakes the thread.
  std::thread thread_;
};

}  // namespace genesis
