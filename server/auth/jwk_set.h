#pragma once

#include <cjose/jwk.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/text/json.h"

namespace genesis {

// The public keys of an issuer of JWTs: a JWK Set (RFC 7517). Copies share the keys.
//
// Threads: any. Failure: UNAUTHENTICATED, without a part of the token.
class JwkSet {
 public:
  // Parses the text of the file `path`. Keys for other uses, algorithms and curves are ignored.
  // INVALID_ARGUMENT with path and cure, also for an RSA key below 2048 bits, more than 100 keys
  // and a set without a usable key.
  static absl::StatusOr<JwkSet> Parse(const std::string& text, const std::string& path);

  // Checks the signature of a JWT in compact form (RFC 7515): RS256 or ES256 by the key that the
  // header's `kid` names; a single key needs no `kid`. OK if the key signed header and claims.
  absl::Status Verify(const std::string& token) const;

 private:
  struct Key {
    std::string id;         // `kid`; empty if it has none.
    std::string algorithm;  // "RS256" or "ES256".
    std::shared_ptr<const cjose_jwk_t> key;
  };
  const Key* Find(const Json& header) const;

  std::vector<Key> keys_;
};

// Returns UNAUTHENTICATED with the text "the JWT <what>".
absl::Status InvalidJwt(absl::string_view what);

// Returns the JSON object that `text` contains. Refuses repeated names, because two parsers could
// use different values, and more than 16 levels.
std::optional<Json> ParseJsonObject(const std::string& text);

// Returns the JSON object in a part of a JWT, encoded as base64url without padding.
std::optional<Json> DecodeJwtPart(absl::string_view part);

}  // namespace genesis
