#include "config/settings/token.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files/sha256.h"
#include "base/random_bytes.h"

namespace genesis {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kSaltBytes = 16;
constexpr size_t kDigestBytes = 32;

bool IsHexOf(absl::string_view text, size_t bytes) {
  return text.size() == 2 * bytes && std::all_of(text.begin(), text.end(), absl::ascii_isxdigit);
}

}  // namespace

std::string NewToken() {
  return absl::StrCat("genesis_", absl::WebSafeBase64Escape(RandomBytes(kTokenBytes)));
}

TokenHash HashToken(const std::string& token) {
  TokenHash hash;
  hash.salt = RandomBytes(kSaltBytes);
  hash.digest = Sha256(hash.salt + token);
  return hash;
}

std::string FormatTokenHash(const TokenHash& hash) {
  return absl::StrCat("sha256:", absl::BytesToHexString(hash.salt), ":",
                      absl::BytesToHexString(hash.digest));
}

std::optional<TokenHash> ParseTokenHash(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() != 3 || parts[0] != "sha256" || !IsHexOf(parts[1], kSaltBytes) ||
      !IsHexOf(parts[2], kDigestBytes)) {
    return std::nullopt;
  }
  return TokenHash{absl::HexStringToBytes(parts[1]), absl::HexStringToBytes(parts[2])};
}

bool Matches(const TokenHash& hash, const std::string& token) {
  const std::string digest = Sha256(hash.salt + token);
  return CRYPTO_memcmp(digest.data(), hash.digest.data(), kDigestBytes) == 0;
}

bool IsCallerName(absl::string_view name) {
  constexpr size_t kLongest = 63;
  return !name.empty() && name.size() <= kLongest && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' || c == '@';
         });
}

}  // namespace genesis
