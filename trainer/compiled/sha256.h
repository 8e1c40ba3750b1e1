#pragma once

#include <string>
#include <string_view>

namespace genesis {

// In lower-case hexadecimal digits, as sha256sum(1) prints it.
std::string Sha256Hex(std::string_view bytes);

}  // namespace genesis
