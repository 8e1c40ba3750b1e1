// The parts of genesis/weights.h that read bytes: files in the daemon's memory, and checksums.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "genesis/training/v1/weights.pb.h"

namespace genesis::internal {

// Receives a length and the descriptor that comes with it, if one does.
inline bool Receive(int daemon, int& descriptor) {
  uint32_t length = 0;
  iovec part{&length, sizeof(length)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(daemon, &message, MSG_CMSG_CLOEXEC) <= 0) return false;
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&descriptor, CMSG_DATA(head), sizeof(descriptor));
  }
  return true;
}

// Maps the file of a version and sets `size`. Null if a later one replaced it or, with `reached`
// false, if this process cannot use the daemon's socket. Throws if mmap(2) fails.
inline std::shared_ptr<const void> MapWeights(const training::v1::WeightsMemory& place,
                                              size_t& size, bool& reached) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (place.socket().size() >= sizeof(address.sun_path)) return nullptr;
  std::memcpy(address.sun_path, place.socket().data(), place.socket().size());
  const int daemon = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (daemon < 0) return nullptr;
  const timeval wait{10, 0};
  setsockopt(daemon, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  const auto length = static_cast<uint32_t>(place.key().size());
  std::string message(reinterpret_cast<const char*>(&length), sizeof(length));
  message += place.key();
  int descriptor = -1;
  if (connect(daemon, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(daemon, message.data(), message.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(message.size())) {
    reached = Receive(daemon, descriptor);
  }
  close(daemon);
  if (descriptor < 0) return nullptr;
  struct stat facts {};
  void* mapped = MAP_FAILED;
  if (fstat(descriptor, &facts) == 0) {
    size = static_cast<size_t>(facts.st_size);
    mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  if (mapped == MAP_FAILED) throw std::runtime_error("a version of the weights cannot be mapped");
  return {mapped, [size](const void* memory) { munmap(const_cast<void*>(memory), size); }};
}

// Returns the CRC-32C of RFC 3720, appendix B.4.
inline uint32_t Crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> rows{};
    for (uint32_t i = 0; i < rows.size(); ++i) {
      uint32_t row = i;
      for (int bit = 0; bit < 8; ++bit) row = (row >> 1) ^ ((row & 1) != 0 ? 0x82F63B78U : 0U);
      rows[i] = row;
    }
    return rows;
  }();
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
  }
  return ~crc;
}

}  // namespace genesis::internal
