#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/settings/role.h"

namespace genesis {

// Who calls, as far as it is known.
struct Caller {
  std::string name = "anonymous";
  Role role = Role::kAdmin;
  std::string peer;  // "ipv4:127.0.0.1:40312", as gRPC writes it.
};

// The credentials that a call brings along.
struct Credentials {
  std::string authorization;  // The header's value: "Bearer <token>"; empty for none.
  std::string certificate;    // Name of a client certificate that was verified.
  std::string peer;
  absl::Status certificate_fault = {};  // Why one that was verified names nobody.
};

// Tells callers apart. Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // UNAUTHENTICATED, saying what is missing, never what was given.
  virtual absl::StatusOr<Caller> Authenticate(const Credentials& credentials) const = 0;
  // Another number whenever Authenticate may answer otherwise than before.
  virtual uint64_t generation() const { return 0; }
};

// For a daemon that only this machine can reach and that has no tokens: everybody is admin.
class OpenAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const Credentials&) const override { return Caller(); }
};

}  // namespace genesis
