#pragma once

#include <string>
#include <string_view>

namespace genesis {

// 32 bytes (FIPS 180-4).
std::string Sha256(std::string_view bytes);

// The same in lower-case hexadecimal digits, as sha256sum(1) prints it.
std::string Sha256Hex(std::string_view bytes);

// Sha256Hex of the bytes of a file; of none where it cannot be read.
std::string Sha256HexOfFile(const std::string& path);

}  // namespace genesis
