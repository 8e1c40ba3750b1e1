#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // EVP_MD_CTX of OpenSSL.

namespace genesis {

// 32 bytes (FIPS 180-4).
std::string Sha256(std::string_view bytes);

// The same in lower-case hexadecimal digits, as sha256sum(1) prints it.
std::string Sha256Hex(std::string_view bytes);

// Sha256Hex of the bytes of a file; of none where it cannot be read.
std::string Sha256HexOfFile(const std::string& path);

// HMAC-SHA256 (RFC 2104) of `bytes` with `key`; 32 bytes.
std::string HmacSha256(std::string_view key, std::string_view bytes);

// A SHA-256 of bytes that come in pieces.
class Sha256Stream {
 public:
  Sha256Stream();
  void Add(std::string_view bytes);
  // Sha256Hex of all that was added; once.
  std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace genesis
