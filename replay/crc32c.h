#pragma once

#include <cstddef>
#include <cstdint>

namespace genesis {

// CRC-32C (Castagnoli), as in iSCSI, ext4 and Python's google-crc32c: that of "123456789" is
// 0xE3069283. Continues from `crc`, that of the bytes before; 0 at the beginning. Uses the
// instruction of the processor where there is one. Thread-safe.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// The same without the instruction, for the test.
uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t size);

}  // namespace genesis
