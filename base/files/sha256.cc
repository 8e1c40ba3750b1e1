#include "base/files/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/escaping.h"

namespace genesis {
namespace {

constexpr size_t kDigestBytes = 32;
constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

std::string Sha256(std::string_view bytes) {
  std::string digest(kDigestBytes, '\0');
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
  return digest;
}

std::string HmacSha256(std::string_view key, std::string_view bytes) {
  std::string code(kDigestBytes, '\0');
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(code.data()), nullptr) == nullptr) {
    std::abort();
  }
  return code;
}

std::string Sha256Hex(std::string_view bytes) { return absl::BytesToHexString(Sha256(bytes)); }

std::string Sha256HexOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256Stream stream;
  std::string piece(kPieceBytes, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    stream.Add(std::string_view(piece).substr(0, static_cast<size_t>(file.gcount())));
  }
  return stream.FinishHex();
}

Sha256Stream::Sha256Stream() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
}

void Sha256Stream::Add(std::string_view bytes) {
  if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) std::abort();
}

std::string Sha256Stream::FinishHex() {
  std::string digest(kDigestBytes, '\0');
  if (EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                         nullptr) != 1) {
    std::abort();
  }
  return absl::BytesToHexString(digest);
}

void Sha256Stream::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

}  // namespace genesis
