#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace genesis {

// Returns bytes of the kernel's generator (getrandom(2)), fit for secrets. `count` is 1 to 256: up
// to that size a call returns all bytes and cannot fail once the generator is seeded.
std::string RandomBytes(size_t count);

// Returns a random number for unique names.
uint64_t RandomNumber();

}  // namespace genesis
