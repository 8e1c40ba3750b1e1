#include "server/api/caller.h"

namespace genesis {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kViewer:
      return "viewer";
    case Role::kSubmitter:
      return "submitter";
    case Role::kAdmin:
      return "admin";
  }
  return "";
}

std::optional<Role> RoleOf(const std::string& name) {
  for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kAdmin}) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

}  // namespace genesis
