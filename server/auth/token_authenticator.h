#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "config/settings/settings.h"
#include "server/auth/browser_sessions.h"
#include "server/auth/caller.h"
#include "server/auth/json_web_token.h"
#include "server/auth/token_file.h"

namespace genesis {

// An authenticator by token, by JWT, by client certificate or by the session of a browser.
//
// Owner: the daemon. Threads: any; Replace swaps the rules for later calls. Failure:
// UNAUTHENTICATED, with one text for malformed and unknown tokens, and one reason for a JWT.
class TokenAuthenticator final : public Authenticator {
 public:
  struct Rules {
    std::optional<TokenFile> file;   // auth.tokens_file; unset disables tokens.
    std::optional<JwtVerifier> jwt;  // auth.jwks_file; unset disables JWTs.
    bool certificates = false;       // True if tls.client_ca_file is set.
    // Role of certificates that the file does not name.
    Role certificate_role = Role::kSubmitter;
  };
  explicit TokenAuthenticator(Rules rules)
      : rules_(std::make_shared<const Rules>(std::move(rules))) {}

  // A token takes precedence over a certificate. Without tokens, JWTs and client CA, every caller
  // is admin: such a daemon listens on loopback only, or runs with --insecure. With only a client
  // CA, callers on the unix socket are admin, because its mode restricts who can connect. The name
  // of a JWT's caller begins with "jwt:", so that no issuer can give it the name of a token.
  absl::StatusOr<Caller> Authenticate(const Credentials& credentials) const override;

  uint64_t generation() const override { return generation_ + sessions_.ended(); }

  void Replace(Rules rules);

  // Returns a code by which a browser signs in as the caller of a call; an empty one if callers are
  // not authenticated. PERMISSION_DENIED if the caller itself is a session.
  absl::StatusOr<BrowserSessions::Secret> NewLoginCode(const Caller& caller);
  // Returns the token of a new session. A session has the name of the caller who got the code and
  // at most its role, and ends with its credentials.
  absl::StatusOr<BrowserSessions::Secret> StartSession(const std::string& code);
  // Ends the session of the header "authorization", if it is one.
  void EndSession(const std::string& authorization);

 private:
  std::shared_ptr<const Rules> rules() const;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const Rules> rules_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{0};
  BrowserSessions sessions_;
};

// Reads the rules that `settings` selects, including the tokens file and the keys of JWTs. Same
// errors as LoadTokenFile and JwtVerifier::Load.
absl::StatusOr<TokenAuthenticator::Rules> LoadRules(const Settings& settings);

}  // namespace genesis
