#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace genesis {

// A token proves who calls: "genesis_" and 43 letters that stand for 256 random bits. The part kept
// of it is a salted SHA-256: with that much chance in the token a slow hash would add nothing, and
// every call pays for it.
struct TokenHash {
  std::string salt;    // 16 bytes.
  std::string digest;  // SHA-256 of salt and token, 32 bytes.
};

// From the kernel's random numbers. Ends the program when there are none.
std::string NewToken();
TokenHash HashToken(const std::string& token);

// "sha256:<salt in hex>:<digest in hex>", as the tokens file has it.
std::string FormatTokenHash(const TokenHash& hash);
std::optional<TokenHash> ParseTokenHash(absl::string_view text);

// In a time that does not depend on where they differ.
bool Matches(const TokenHash& hash, const std::string& token);

// 1 to 63 letters, digits, '.', '_', '-' and '@', the first no '-'.
bool IsCallerName(absl::string_view name);
inline constexpr char kCallerNameRule[] =
    "1 to 63 letters, digits, '.', '_', '-' and '@', the first no '-'";

}  // namespace genesis
