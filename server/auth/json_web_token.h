#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "config/settings/role.h"
#include "config/settings/settings.h"
#include "server/auth/jwk_set.h"

namespace genesis {

// The caller that a JWT identifies.
struct JwtSubject {
  std::string name;          // Value of the claim auth.jwt_owner_claim.
  std::optional<Role> role;  // From the claim auth.jwt_role_claim, if it has a role.
  absl::Time end;            // When the JWT is no longer accepted.
};

// A verifier of JWTs (RFC 7519, by the rules of RFC 8725): their signature, issuer, audience and
// times, with 60 seconds of skew between the clocks. Copies share the keys.
//
// Threads: any. Failure: UNAUTHENTICATED with one reason, which contains no part of the token.
class JwtVerifier {
 public:
  // Reads auth.jwks_file, and keeps the other settings of JWTs. Same errors as JwkSet::Parse.
  static absl::StatusOr<JwtVerifier> Load(const AuthSettings& settings);

  absl::StatusOr<JwtSubject> Verify(const std::string& token, absl::Time now) const;

 private:
  JwtVerifier(JwkSet keys, AuthSettings settings)
      : keys_(std::move(keys)), settings_(std::move(settings)) {}
  absl::StatusOr<JwtSubject> SubjectOf(const Json& claims, absl::Time now) const;

  JwkSet keys_;
  AuthSettings settings_;
};

// Returns true if a bearer token has the form of a JWT, three parts, which no other token has.
bool LooksLikeJwt(absl::string_view token);

}  // namespace genesis
