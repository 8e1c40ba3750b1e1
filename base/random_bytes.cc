#include "base/random_bytes.h"

#include <sys/random.h>

#include <cstring>

namespace genesis {

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  // A signal may interrupt the wait for the kernel's first seed.
  while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
  }
  return bytes;
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  const std::string bytes = RandomBytes(sizeof(number));
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

}  // namespace genesis
