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
#include "server/auth/caller.h"
#include "server/auth/token_file.h"

namespace genesis {

// Tells callers apart by token or by client certificate.
//
// Owner: the daemon. Threads: any; Replace swaps the rules for calls that come after it. Failure:
// UNAUTHENTICATED, the same for a token that is missing a letter and for one that never was.
class TokenAuthenticator final : public Authenticator {
 public:
  struct Rules {
    std::optional<TokenFile> file;             // auth.tokens_file; none: no tokens.
    bool certificates = false;                 // tls.client_ca_file is set.
    Role certificate_role = Role::kSubmitter;  // Of those that the file does not name.
  };
  explicit TokenAuthenticator(Rules rules)
      : rules_(std::make_shared<const Rules>(std::move(rules))) {}

  // A token goes before a certificate. Without tokens and client authority everybody is admin: such
  // a daemon is on loopback only, or was told --insecure. With client authority alone, so is who
  // comes over the unix socket, whose mode says who that may be.
  absl::StatusOr<Caller> Authenticate(const Credentials& credentials) const override;

  uint64_t generation() const override { return generation_; }

  void Replace(Rules rules);

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Rules> rules_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{0};
};

// The rules that `settings` ask for; reads the tokens file. As LoadTokenFile.
absl::StatusOr<TokenAuthenticator::Rules> LoadRules(const Settings& settings);

}  // namespace genesis
