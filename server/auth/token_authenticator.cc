#include "server/auth/token_authenticator.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

using Rules = TokenAuthenticator::Rules;

// Compares with every token, so that the timing does not reveal which one matched.
std::optional<Caller> ByToken(const TokenFile& file, const std::string& token) {
  std::optional<Caller> caller;
  for (const TokenFile::Token& each : file.tokens) {
    if (Matches(each.hash, token)) caller = Caller{each.name, each.role, ""};
  }
  return caller;
}

Caller ByCertificate(const Rules& rules, const std::string& name) {
  Caller caller{name, rules.certificate_role, ""};
  if (!rules.file.has_value()) return caller;
  for (const TokenFile::Certificate& each : rules.file->certificates) {
    if (each.common_name == name) caller.role = each.role;
  }
  return caller;
}

absl::Status NobodySaid(const Rules& rules) {
  if (!rules.file.has_value()) {
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

}  // namespace

absl::StatusOr<Caller> TokenAuthenticator::Authenticate(const Credentials& credentials) const {
  std::shared_ptr<const Rules> rules;
  {
    absl::MutexLock lock(&mutex_);
    rules = rules_;
  }
  if (!rules->file.has_value() && !rules->certificates) return Caller();
  absl::string_view token = credentials.authorization;
  if (rules->file.has_value() && !token.empty()) {
    // The scheme name is case-insensitive (RFC 9110).
    const bool bearer = absl::StartsWithIgnoreCase(token, "bearer ");
    if (bearer) token.remove_prefix(sizeof("bearer ") - 1);
    std::optional<Caller> caller =
        bearer ? ByToken(*rules->file, std::string(token)) : std::nullopt;
    if (caller.has_value()) return *std::move(caller);
    return absl::UnauthenticatedError(
        "the token is not known; accepted: one whose line stands in auth.tokens_file (an admin "
        "makes one with genesisctl token NAME ROLE)");
  }
  if (rules->certificates && !credentials.certificate_fault.ok()) {
    return credentials.certificate_fault;
  }
  if (rules->certificates && !credentials.certificate.empty()) {
    return ByCertificate(*rules, credentials.certificate);
  }
  const bool unix_socket = absl::StartsWith(credentials.peer, "unix:");
  if (!rules->file.has_value() && unix_socket) return Caller{"unix-socket", Role::kAdmin, ""};
  return NobodySaid(*rules);
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
  if (settings.auth.tokens_file.empty()) return rules;
  absl::StatusOr<TokenFile> file = LoadTokenFile(settings.auth.tokens_file);
  if (!file.ok()) return file.status();
  rules.file = *std::move(file);
  return rules;
}

}  // namespace genesis
