#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace genesis {

// A connected Unix socket for messages, each with at most one file descriptor. A message is its
// length as four bytes, little-endian, and its bytes; the descriptor travels with the first byte
// (SCM_RIGHTS).
//
// Owner: a scope. Threads: one. Failure: the status of the system call; DEADLINE_EXCEEDED if the
// peer is silent for longer than the timeout, UNAVAILABLE if it closes the socket.
class MemorySocket {
 public:
  struct Message {
    std::string bytes;
    int descriptor = -1;  // Belongs to the receiver; -1 for none.
  };

  static absl::StatusOr<MemorySocket> Connect(const std::string& path, absl::Duration timeout);
  // Takes over a connected socket, which becomes blocking.
  MemorySocket(int descriptor, absl::Duration timeout);
  MemorySocket(MemorySocket&& other) noexcept;
  MemorySocket& operator=(MemorySocket&&) = delete;
  ~MemorySocket();

  absl::Status Send(const std::string& bytes, int descriptor = -1);
  // INVALID_ARGUMENT for a message of more than kMaxMessageBytes.
  absl::StatusOr<Message> Receive();

  static constexpr size_t kMaxMessageBytes = size_t{64} << 20;

 private:
  absl::StatusOr<size_t> ReceiveSome(char* at, size_t size, int& descriptor);
  absl::Status ReceiveAll(char* at, size_t size, int& descriptor);

  int socket_;
};

}  // namespace genesis
