#pragma once

#include <cstddef>
#include <cstdint>

namespace genesis {

// CRC-32C (Castagnoli), as in iSCSI, ext4 and Python's google-crc32c: that of "123456789" is
// 0xE3069283. Continues from `crc`, that of the bytes before; 0 at the beginning. Uses the
// instruction of the processor where there is one. Thread-safe.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// That of two pieces one after the other, from that of each and the size of the second.
uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_size);

// Crc32c without the instruction, for the test.
uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t size);

}  // namespace genesis
