#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/auth/caller.h"

namespace genesis {

// Returns PERMISSION_DENIED unless the caller owns the object or is an admin. `what` names the
// object, such as "job \"run-1\"". An object without an owner belongs to the admins.
absl::Status CheckOwner(const Caller& caller, const std::string& owner, const std::string& what);

// A rule of what callers see: the jobs, checkpoints and events of all owners, or only their own.
class Visibility {
 public:
  explicit Visibility(bool own_only) : own_only_(own_only) {}

  bool Sees(const Caller& caller, const std::string& owner) const {
    return !own_only_ || caller.role == Role::kAdmin || caller.name == owner;
  }
  // Returns true if the caller sees the objects of every owner.
  bool SeesAll(const Caller& caller) const { return !own_only_ || caller.role == Role::kAdmin; }

 private:
  const bool own_only_;
};

}  // namespace genesis
