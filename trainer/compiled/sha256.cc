#include "trainer/compiled/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

#include "absl/strings/escaping.h"

namespace genesis {

std::string Sha256Hex(std::string_view bytes) {
  constexpr size_t kDigestBytes = 32;
  std::string digest(kDigestBytes, '\0');
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
  return absl::BytesToHexString(digest);
}

}  // namespace genesis
