#include "server/auth/ownership.h"

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {

absl::Status CheckOwner(const Caller& caller, const std::string& owner, const std::string& what) {
  if (caller.role == Role::kAdmin || (!owner.empty() && caller.name == owner)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(what, " belongs to ", owner.empty() ? "the admins" : QuoteValue(owner), "; ",
                   QuoteValue(caller.name), " may change only what is its own: ask ",
                   owner.empty() ? "an admin" : "its owner or an admin"));
}

}  // namespace genesis
