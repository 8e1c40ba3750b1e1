#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/settings/role.h"

namespace genesis {

// The identity of a caller, as far as it is known.
struct Caller {
  std::string name = "anonymous";
  Role role = Role::kAdmin;
  std::string peer;  // "ipv4:127.0.0.1:40312", in gRPC's format.
};

// The credentials of one call.
struct Credentials {
  std::string authorization;  // The header's value: "Bearer <token>"; empty for none.
  std::string certificate;    // Name from a verified client certificate.
  std::string peer;
  absl::Status certificate_fault = {};  // Reason why a verified certificate names no caller.
};

// Identifies callers. Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // UNAUTHENTICATED with what is missing, never with the given credentials.
  virtual absl::StatusOr<Caller> Authenticate(const Credentials& credentials) const = 0;
  // Changes whenever Authenticate may return another result than before.
  virtual uint64_t generation() const { return 0; }
};

// Treats every caller as admin, for a daemon that only this machine can reach and that has no
// tokens.
class OpenAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const Credentials&) const override { return Caller(); }
};

}  // namespace genesis
