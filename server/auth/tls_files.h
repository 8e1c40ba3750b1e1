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

// The files of TLS, as PEM text.
struct TlsMaterial {
  std::string certificate_chain;  // Ours first.
  std::string private_key;        // A secret: never logged, never shown.
  std::string client_ca;          // Who may sign clients' certificates; empty for no mTLS.
  absl::Time not_after;           // Until when our certificate is valid.
};

// Reads the files that `settings` names (tls.certificate_file, tls.key_file, tls.client_ca_file)
// and checks that they are PEM and that the key belongs to the certificate. INVALID_ARGUMENT (or
// NOT_FOUND, PERMISSION_DENIED) naming setting, file and what to do. A certificate that is not
// valid now is no error, for the clock may be wrong: not_after says so. Only with
// tls.certificate_file.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const Settings& settings);

// The material in use, for every listener; replaced whole when the files have changed. A listener
// keeps the generation that it has built its TLS context from, and builds anew when another is
// here.
//
// Owner: the daemon. Threads: any. Failure: none.
class TlsStore {
 public:
  explicit TlsStore(TlsMaterial material);

  struct Current {
    std::shared_ptr<const TlsMaterial> material;
    uint64_t generation;  // 1 at start; grows with each Replace.
  };
  Current current() const;
  void Replace(TlsMaterial material);

 private:
  mutable absl::Mutex mutex_;
  Current current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
