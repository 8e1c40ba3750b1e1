#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "config/settings/settings.h"
#include "metrics/metrics.h"
#include "server/api/runtime_config.h"
#include "server/auth/audit_log.h"
#include "server/auth/tls_files.h"
#include "server/auth/token_authenticator.h"
#include "server/start_failure.h"

namespace genesis {

// The access to the daemon: certificates, tokens and the audit log.
//
// Owner: the daemon. Threads: the main thread; the objects that it returns belong to it and are
// thread-safe.
class Security {
 public:
  Security(const Settings& settings, Metrics* metrics) : settings_(settings), metrics_(metrics) {}

  // Reads certificates and tokens and opens the audit log.
  std::optional<StartFailure> Open();
  // Lets a reload of the settings replace certificates and tokens. Call it after Open.
  void AddTo(RuntimeConfig& config);
  // Opens the audit log again after its file was rotated.
  absl::Status ReopenAudit();

  TlsStore* tls() const { return tls_.get(); }  // Null without TLS.
  TokenAuthenticator* authenticator() const { return authenticator_.get(); }
  AuditLog* audit() const { return audit_.get(); }  // Null if it is disabled.

 private:
  const Settings& settings_;
  Metrics* const metrics_;
  std::unique_ptr<TlsStore> tls_;
  std::unique_ptr<TokenAuthenticator> authenticator_;
  std::unique_ptr<AuditLog> audit_;
};

}  // namespace genesis
