#include "base/files/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace genesis {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Bit-reversed.

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Table k handles a byte that is followed by k more bytes.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

// Returns the product of two polynomials modulo the polynomial of the checksum. The highest bit is
// the coefficient of 1.
uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

uint64_t Load(const unsigned char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t WithInstruction(uint32_t crc, const unsigned char* at,
                                                           size_t size) {
  uint64_t state = ~crc;
  for (; size >= 8; at += 8, size -= 8) state = _mm_crc32_u64(state, Load(at));
  auto rest = static_cast<uint32_t>(state);
  for (; size > 0; ++at, --size) rest = _mm_crc32_u8(rest, *at);
  return ~rest;
}
#endif

}  // namespace

// A checksum is a remainder: each byte that follows shifts it by eight places (as in zlib's
// crc32_combine).
uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_size) {
  uint32_t shifted = first;
  uint32_t power = uint32_t{1} << 23;  // x^8: one byte.
  for (; second_size > 0; second_size >>= 1) {
    if ((second_size & 1) != 0) shifted = Multiply(power, shifted);
    power = Multiply(power, power);
  }
  return shifted ^ second;
}

uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t size) {
  const auto* at = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 8; at += 8, size -= 8) {
    const uint64_t word = Load(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return WithInstruction(crc, static_cast<const unsigned char*>(data), size);
#endif
  return Crc32cPortable(crc, data, size);
}

}  // namespace genesis
