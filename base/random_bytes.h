#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace genesis {

// Bytes from the kernel's generator (getrandom(2)), fit for secrets. `count` is 1 to 256: so few
// come in one piece and without an error, once the kernel's generator has been seeded.
std::string RandomBytes(size_t count);

// A name's random part.
uint64_t RandomNumber();

}  // namespace genesis
