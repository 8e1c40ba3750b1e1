#include "server/auth/json_web_token.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/text.h"
#include "server/auth/secret_file.h"

namespace genesis {
namespace {

constexpr size_t kMaxJwtBytes = 8192;
constexpr size_t kMaxName = 255;  // As OpenID Connect allows for `sub`.
constexpr absl::Duration kSkew = absl::Seconds(60);
constexpr uint64_t kMaxSeconds = 253402300799;  // The end of the year 9999.

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// Returns true if a claim is the text, or a list with it.
bool Has(const Json& claims, const std::string& name, const std::string& text) {
  const auto found = claims.find(name);
  if (found == claims.end()) return false;
  if (!found->is_array()) return *found == text;
  return std::find(found->begin(), found->end(), text) != found->end();
}

// Returns the time in a claim, or `fallback` if it is missing.
absl::StatusOr<absl::Time> TimeOf(const Json& claims, const char* name, absl::Time fallback) {
  const auto found = claims.find(name);
  if (found == claims.end()) return fallback;
  if (!found->is_number_unsigned() || found->get<uint64_t>() > kMaxSeconds) {
    return InvalidJwt(
        absl::StrCat("has an unusable ", name,
                     "; accepted: a whole number of seconds since 1970, before the year 10000"));
  }
  return absl::FromUnixSeconds(static_cast<int64_t>(found->get<uint64_t>()));
}

absl::StatusOr<absl::Time> CheckTimes(const Json& claims, absl::Time now) {
  const absl::StatusOr<absl::Time> end = TimeOf(claims, "exp", absl::InfinitePast());
  if (!end.ok()) return end.status();
  if (*end == absl::InfinitePast()) return InvalidJwt("has no exp; accepted: one that expires");
  if (now >= *end + kSkew) {
    return InvalidJwt(
        absl::StrCat("expired at ", TimeText(*end), "; get a new one from its issuer"));
  }
  for (const char* name : {"nbf", "iat"}) {
    const absl::StatusOr<absl::Time> begin = TimeOf(claims, name, absl::InfinitePast());
    if (!begin.ok()) return begin.status();
    if (*begin > now + kSkew) {
      return InvalidJwt(absl::StrCat("is not valid before ", TimeText(*begin), " (", name,
                                     "); wait, or set the clocks of issuer and daemon"));
    }
  }
  return *end + kSkew;
}

std::optional<Role> RoleIn(const Json& claims, const std::string& name) {
  for (const Role role : {Role::kAdmin, Role::kSubmitter, Role::kViewer}) {
    if (Has(claims, name, RoleName(role))) return role;
  }
  return std::nullopt;
}

}  // namespace

bool LooksLikeJwt(absl::string_view token) {
  return std::count(token.begin(), token.end(), '.') == 2;
}

absl::StatusOr<JwtVerifier> JwtVerifier::Load(const AuthSettings& settings) {
  const absl::StatusOr<std::string> text = ReadTrustedFile("auth.jwks_file", settings.jwks_file);
  if (!text.ok()) return text.status();
  absl::StatusOr<JwkSet> keys = JwkSet::Parse(*text, settings.jwks_file);
  if (!keys.ok()) return keys.status();
  return JwtVerifier(*std::move(keys), settings);
}

absl::StatusOr<JwtSubject> JwtVerifier::Verify(const std::string& token, absl::Time now) const {
  if (token.size() > kMaxJwtBytes) {
    return InvalidJwt(absl::StrCat("is too long; accepted: at most ", kMaxJwtBytes, " bytes"));
  }
  absl::Status verified = keys_.Verify(token);
  if (!verified.ok()) return verified;
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  const std::optional<Json> claims = DecodeJwtPart(parts[1]);
  if (!claims) {
    return InvalidJwt(
        "has unusable claims; accepted: a JSON object in UTF-8 whose names do not repeat");
  }
  return SubjectOf(*claims, now);
}

absl::StatusOr<JwtSubject> JwtVerifier::SubjectOf(const Json& claims, absl::Time now) const {
  const absl::StatusOr<absl::Time> end = CheckTimes(claims, now);
  if (!end.ok()) return end.status();
  const auto issuer = claims.find("iss");
  if (issuer == claims.end() || *issuer != settings_.jwt_issuer) {
    return InvalidJwt(absl::StrCat("is of another issuer; accepted: iss ", settings_.jwt_issuer));
  }
  if (!Has(claims, "aud", settings_.jwt_audience)) {
    return InvalidJwt(
        absl::StrCat("is for another audience; accepted: aud ", settings_.jwt_audience));
  }
  const auto owner = claims.find(settings_.jwt_owner_claim);
  std::string name = owner != claims.end() && owner->is_string() ? owner->get<std::string>() : "";
  // OneLine leaves text without control characters unchanged.
  if (name.empty() || name.size() > kMaxName || OneLine(name, 4 * kMaxName) != name) {
    return InvalidJwt(absl::StrCat("has no usable claim ", settings_.jwt_owner_claim,
                                   "; accepted: 1 to ", kMaxName,
                                   " bytes of text without control characters"));
  }
  return JwtSubject{std::move(name), RoleIn(claims, settings_.jwt_role_claim), *end};
}

}  // namespace genesis
