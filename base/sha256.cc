#include "base/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"

namespace genesis {

std::string Sha256(std::string_view bytes) {
  std::string digest(32, '\0');
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
  return digest;
}

std::string Sha256Hex(std::string_view bytes) { return absl::BytesToHexString(Sha256(bytes)); }

std::string Sha256HexOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Sha256Hex(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace genesis
