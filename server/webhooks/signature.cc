#include "server/webhooks/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace genesis {

std::optional<std::string> ParseWebhookSecret(const std::string& secret) {
  absl::string_view text = secret;
  std::string key;
  if (!absl::ConsumePrefix(&text, "whsec_") || !absl::Base64Unescape(text, &key)) {
    return std::nullopt;
  }
  if (key.size() < 24 || key.size() > 64) return std::nullopt;
  return key;
}

std::string SignWebhook(const std::string& key, const std::string& id, int64_t timestamp,
                        const std::string& body) {
  const std::string text = absl::StrCat(id, ".", timestamp, ".", body);
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(digest.data()), &size);
  digest.resize(size);
  return absl::StrCat("v1,", absl::Base64Escape(digest));
}

}  // namespace genesis
