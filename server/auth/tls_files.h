#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "config/settings/settings.h"

namespace genesis {

// The content of the TLS files, as PEM text.
struct TlsMaterial {
  std::string certificate_chain;  // The daemon's certificate first.
  std::string private_key;        // Secret: never logged or displayed.
  std::string client_ca;          // The CAs that may sign client certificates; empty disables mTLS.
  absl::Time not_after;           // Expiry time of the daemon's certificate.
};

// Reads the files that `settings` names (tls.certificate_file, tls.key_file, tls.client_ca_file)
// and checks that they are PEM and that the key matches the certificate. INVALID_ARGUMENT (or
// NOT_FOUND, PERMISSION_DENIED) with setting, file and cure. A certificate that is not valid now is
// not an error, because the clock may be wrong; check not_after. Requires tls.certificate_file.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const Settings& settings);

// The TLS material in use, for all listeners; replaced as a whole when the files have changed. A
// listener remembers the generation of its TLS context and builds a new one when it changes.
//
// Owner: the daemon. Threads: any. Failure: none.
class TlsStore {
 public:
  explicit TlsStore(TlsMaterial material);

  struct Current {
    std::shared_ptr<const TlsMaterial> material;
    uint64_t generation;  // 1 at start; incremented by each Replace.
  };
  Current current() const;
  void Replace(TlsMaterial material);

 private:
  mutable absl::Mutex mutex_;
  Current current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
