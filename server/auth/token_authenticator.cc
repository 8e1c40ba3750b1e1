#include "server/auth/token_authenticator.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

// Prefix of the names of callers with JWTs. No other caller's name begins with it.
constexpr char kJwtPrefix[] = "jwt:";

using Rules = TokenAuthenticator::Rules;

// Compares with every token, so that the timing does not reveal which one matched.
std::optional<Caller> ByToken(const TokenFile& file, const std::string& token) {
  std::optional<Caller> caller;
  for (const TokenFile::Token& each : file.tokens) {
    if (Matches(each.hash, token)) caller = Caller{each.name, each.role, ""};
  }
  return caller;
}

// Returns the caller of a JWT. A line of the tokens file takes precedence over the role in the JWT.
absl::StatusOr<Caller> ByJwt(const Rules& rules, const std::string& token) {
  absl::StatusOr<JwtSubject> subject = rules.jwt->Verify(token, absl::Now());
  if (!subject.ok()) return subject.status();
  if (rules.file.has_value()) {
    for (const TokenFile::Named& each : rules.file->jwts) {
      if (each.name == subject->name) subject->role = each.role;
    }
  }
  const std::string name = absl::StrCat(kJwtPrefix, subject->name);
  if (subject->role.has_value()) return Caller{name, *subject->role, "", subject->end};
  return absl::UnauthenticatedError(
      absl::StrCat("the JWT of ", QuoteValue(name),
                   " gives no role; accepted: the claim auth.jwt_role_claim with "
                   "viewer, submitter or admin, or a line jwt:NAME ROLE in auth.tokens_file"));
}

// Returns the token of the header "authorization"; "" if it has none. The name of the scheme is
// case-insensitive (RFC 9110).
std::string BearerToken(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return "";
  return std::string(authorization.substr(kScheme.size()));
}

absl::StatusOr<Caller> ByBearer(const Rules& rules, const std::string& authorization) {
  const std::string token = BearerToken(authorization);
  if (rules.jwt.has_value() && LooksLikeJwt(token)) return ByJwt(rules, token);
  std::optional<Caller> caller =
      rules.file && !token.empty() ? ByToken(*rules.file, token) : std::nullopt;
  if (caller.has_value()) return *std::move(caller);
  return absl::UnauthenticatedError(absl::StrCat(
      "the token is not known; accepted: ", rules.jwt ? "a JWT of auth.jwt_issuer" : "",
      rules.jwt && rules.file ? ", or " : "",
      rules.file ? "one whose line stands in auth.tokens_file (an admin makes one with genesisctl "
                   "token NAME ROLE)"
                 : ""));
}

Caller ByCertificate(const Rules& rules, const std::string& name) {
  Caller caller{name, rules.certificate_role, ""};
  if (!rules.file.has_value()) return caller;
  for (const TokenFile::Named& each : rules.file->certificates) {
    if (each.name == name) caller.role = each.role;
  }
  return caller;
}

absl::Status NobodySaid(const Rules& rules) {
  if (!rules.file.has_value() && !rules.jwt.has_value()) {
    return absl::UnauthenticatedError(
        "no client certificate; accepted: one that tls.client_ca_file has signed (genesisctl "
        "--tls-cert, --tls-key)");
  }
  return absl::UnauthenticatedError(
      rules.certificates
          ? "no token and no client certificate; send authorization: Bearer TOKEN (genesisctl "
            "--token-file, GENESIS_TOKEN), or a certificate that tls.client_ca_file has signed"
          : "no token; send authorization: Bearer TOKEN (genesisctl --token-file, GENESIS_TOKEN)");
}

bool HasTokens(const Rules& rules) { return rules.file.has_value() || rules.jwt.has_value(); }

bool IsOpen(const Rules& rules) { return !HasTokens(rules) && !rules.certificates; }

// Returns the caller of credentials other than a session's.
absl::StatusOr<Caller> ByCredentials(const Rules& rules, const Credentials& credentials) {
  const bool tokens = HasTokens(rules);
  if (tokens && !credentials.authorization.empty()) {
    return ByBearer(rules, credentials.authorization);
  }
  if (rules.certificates && !credentials.certificate_fault.ok()) {
    return credentials.certificate_fault;
  }
  if (rules.certificates && !credentials.certificate.empty()) {
    if (absl::StartsWith(credentials.certificate, kJwtPrefix)) {
      return absl::UnauthenticatedError(
          "the certificate's common name begins with jwt:, as only names of JWTs do; accepted: "
          "any other common name");
    }
    return ByCertificate(rules, credentials.certificate);
  }
  const bool unix_socket = absl::StartsWith(credentials.peer, "unix:");
  if (!tokens && unix_socket) return Caller{"unix-socket", Role::kAdmin, ""};
  return NobodySaid(rules);
}

// Returns a session's caller, with at most its role, if its credentials still name that caller.
absl::StatusOr<Caller> BySession(const Rules& rules, const BrowserSessions::Login& login) {
  absl::StatusOr<Caller> caller = ByCredentials(rules, login.credentials);
  if (!caller.ok() || caller->name != login.name) {
    return absl::UnauthenticatedError(
        "the session has ended with the credentials that it stood for; sign in with a token, or "
        "get a new link by genesisctl open");
  }
  if (MayDo(caller->role, login.role)) caller->role = login.role;
  caller->end = std::min(caller->end, login.end);
  return caller;
}

}  // namespace

std::shared_ptr<const Rules> TokenAuthenticator::rules() const {
  absl::MutexLock lock(&mutex_);
  return rules_;
}

absl::StatusOr<Caller> TokenAuthenticator::Authenticate(const Credentials& credentials) const {
  const std::shared_ptr<const Rules> rules = this->rules();
  if (IsOpen(*rules)) return Caller();
  const std::optional<BrowserSessions::Login> login =
      sessions_.Find(BearerToken(credentials.authorization), absl::Now());
  return login ? BySession(*rules, *login) : ByCredentials(*rules, credentials);
}

absl::StatusOr<BrowserSessions::Secret> TokenAuthenticator::NewLoginCode(const Caller& caller) {
  if (IsOpen(*rules())) return BrowserSessions::Secret();
  if (sessions_.Find(BearerToken(caller.credentials->authorization), absl::Now()).has_value()) {
    return absl::PermissionDeniedError(
        "a browser that signed in by a link cannot get another; use the token itself");
  }
  return sessions_.NewCode(caller, absl::Now());
}

absl::StatusOr<BrowserSessions::Secret> TokenAuthenticator::StartSession(const std::string& code) {
  return sessions_.Exchange(code, absl::Now());
}

void TokenAuthenticator::EndSession(const std::string& authorization) {
  sessions_.End(BearerToken(authorization));
}

void TokenAuthenticator::Replace(Rules rules) {
  auto replacement = std::make_shared<const Rules>(std::move(rules));
  absl::MutexLock lock(&mutex_);
  rules_.swap(replacement);
  ++generation_;
}

absl::StatusOr<Rules> LoadRules(const Settings& settings) {
  Rules rules;
  rules.certificates = !settings.tls.client_ca_file.empty();
  rules.certificate_role = RoleOf(settings.tls.client_role).value_or(Role::kViewer);
  if (!settings.auth.jwks_file.empty()) {
    absl::StatusOr<JwtVerifier> jwt = JwtVerifier::Load(settings.auth);
    if (!jwt.ok()) return jwt.status();
    rules.jwt = *std::move(jwt);
  }
  if (settings.auth.tokens_file.empty()) return rules;
  absl::StatusOr<TokenFile> file = LoadTokenFile(settings.auth.tokens_file);
  if (!file.ok()) return file.status();
  rules.file = *std::move(file);
  return rules;
}

}  // namespace genesis
