#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "config/settings/role.h"

namespace genesis {

struct Credentials;

// The identity of a caller, as far as it is known.
struct Caller {
  std::string name = "anonymous";
  Role role = Role::kAdmin;
  std::string peer;  // In gRPC's format: "ipv4:127.0.0.1:40312".
  // When the credentials expire.
  absl::Time end = absl::InfiniteFuture();
  // Header of the call (W3C Trace Context); empty if missing. Not checked.
  std::string traceparent = {};
  // Returns OK while the caller waits for the response and may have it. Called only before the call
  // has ended; null for a caller that does not wait.
  std::function<absl::Status()> check = nullptr;
  // The credentials of the call; null outside of a call.
  std::shared_ptr<const Credentials> credentials = nullptr;
};

// The credentials of one call.
struct Credentials {
  std::string authorization;  // Value of the header: "Bearer <token>"; empty if missing.
  std::string certificate;    // Name from a verified client certificate.
  std::string peer;
  absl::Status certificate_fault = {};  // Why a verified certificate names no caller.
  std::string traceparent = {};         // Header of the call.
  // Returns true once the caller is gone. Called only before the call has ended; null if the
  // transport does not know.
  std::function<bool()> is_gone = nullptr;
};

// An interface that identifies callers. Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // Returns the caller, or UNAUTHENTICATED with what is missing but never the given credentials.
  virtual absl::StatusOr<Caller> Authenticate(const Credentials& credentials) const = 0;
  // Returns a number that changes whenever Authenticate may return a different result.
  virtual uint64_t generation() const { return 0; }
};

// An authenticator to which every caller is an admin, for tests. In the daemon, TokenAuthenticator
// does the same if neither tokens, JWTs nor a client CA are configured.
class OpenAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const Credentials&) const override { return Caller(); }
};

}  // namespace genesis
