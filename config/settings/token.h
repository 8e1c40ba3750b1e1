#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace genesis {

// The stored form of a token. A token proves a caller's identity: "genesis_" and 43 characters that
// encode 256 random bits. It is stored as a salted SHA-256, because with so much entropy a slow
// hash would add no security but cost time in every call.
struct TokenHash {
  std::string salt;    // 16 bytes.
  std::string digest;  // SHA-256 of salt and token, 32 bytes.
};

// Returns a token of random bits (RandomBytes).
std::string NewToken();
TokenHash HashToken(const std::string& token);

// Returns "sha256:<salt in hex>:<digest in hex>", as in the tokens file.
std::string FormatTokenHash(const TokenHash& hash);
std::optional<TokenHash> ParseTokenHash(absl::string_view text);

// Compares in constant time.
bool Matches(const TokenHash& hash, const std::string& token);

// Returns true for 1 to 63 letters, digits, '.', '_', '-' and '@', not starting with '-'.
bool IsCallerName(absl::string_view name);
inline constexpr char kCallerNameRule[] =
    "1 to 63 letters, digits, '.', '_', '-' and '@', the first no '-'";

}  // namespace genesis
