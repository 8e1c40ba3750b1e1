#include "base/files/memory_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/errno_status.h"

namespace genesis {
namespace {

absl::Status SocketFailed(const char* call) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return absl::DeadlineExceededError(absl::StrCat(call, ": the other side is silent"));
  }
  return ErrnoStatus(call, errno);
}

}  // namespace

absl::StatusOr<MemorySocket> MemorySocket::Connect(const std::string& path,
                                                   absl::Duration timeout) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path ", path, " has ", path.size(),
                                                   " characters; accepted: at most ",
                                                   sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  MemorySocket connected(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), timeout);
  if (connect(connected.socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    return SocketFailed(path.c_str());
  }
  return connected;
}

MemorySocket::MemorySocket(int descriptor, absl::Duration timeout) : socket_(descriptor) {
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) & ~O_NONBLOCK);
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

MemorySocket::MemorySocket(MemorySocket&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)) {}

MemorySocket::~MemorySocket() {
  if (socket_ >= 0) close(socket_);
}

absl::Status MemorySocket::Send(const std::string& bytes, int descriptor) {
  auto length = static_cast<uint32_t>(bytes.size());
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  std::array<iovec, 2> parts = {
      {{.iov_base = &length, .iov_len = sizeof(length)},
       {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()}}};
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return SocketFailed("sendmsg");
    // The descriptor was sent with the first bytes.
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    auto left = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t done = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + done;
      part.iov_len -= done;
      left -= done;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> MemorySocket::ReceiveSome(char* at, size_t size, int& descriptor) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec part = {.iov_base = at, .iov_len = size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  while ((count = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (count < 0) return SocketFailed("recvmsg");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    if (descriptor >= 0) close(descriptor);
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  }
  return static_cast<size_t>(count);
}

absl::Status MemorySocket::ReceiveAll(char* at, size_t size, int& descriptor) {
  while (size > 0) {
    const absl::StatusOr<size_t> count = ReceiveSome(at, size, descriptor);
    if (!count.ok()) return count.status();
    if (*count == 0) return absl::UnavailableError("the other side closed the connection");
    at += *count;
    size -= *count;
  }
  return absl::OkStatus();
}

absl::StatusOr<MemorySocket::Message> MemorySocket::Receive() {
  Message message;
  uint32_t length = 0;
  absl::Status received =
      ReceiveAll(reinterpret_cast<char*>(&length), sizeof(length), message.descriptor);
  if (received.ok() && length > kMaxMessageBytes) {
    received = absl::InvalidArgumentError(
        absl::StrCat("the message has ", length, " bytes; accepted: at most ", kMaxMessageBytes));
  }
  if (received.ok()) {
    message.bytes.resize(length);
    received = ReceiveAll(message.bytes.data(), length, message.descriptor);
  }
  if (received.ok()) return message;
  if (message.descriptor >= 0) close(message.descriptor);
  return received;
}

}  // namespace genesis
