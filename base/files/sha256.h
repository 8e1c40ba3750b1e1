#pragma once

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // EVP_MD_CTX of OpenSSL.

namespace genesis {

// Returns the SHA-256 (FIPS 180-4), 32 bytes.
std::string Sha256(std::string_view bytes);

// Returns the SHA-256 in lower-case hexadecimal digits, as sha256sum(1) prints it.
std::string Sha256Hex(std::string_view bytes);

// Returns Sha256Hex of a file's bytes, or Sha256Hex("") if the file cannot be read.
std::string Sha256HexOfFile(const std::string& path);

// Returns the HMAC-SHA256 (RFC 2104) of `bytes` with `key`, 32 bytes.
std::string HmacSha256(std::string_view key, std::string_view bytes);

// An incremental SHA-256.
class Sha256Stream {
 public:
  Sha256Stream();
  void Add(std::string_view bytes);
  // Returns Sha256Hex of all added bytes. Call once.
  std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace genesis
