#pragma once

#include <cstddef>
#include <cstdint>

namespace genesis {

// Computes CRC-32C (Castagnoli), as iSCSI, ext4 and Python's google-crc32c do: 0xE3069283 for
// "123456789". `crc` is the checksum of the preceding bytes, 0 at the beginning. Uses the
// processor's instruction if it has one. Thread-safe.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// Returns the checksum of two concatenated pieces, from the checksum of each and the size of the
// second.
uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_size);

// Computes Crc32c without the processor's instruction, for the test.
uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t size);

}  // namespace genesis
