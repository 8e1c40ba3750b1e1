#include "config/settings/role.h"

namespace genesis {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kViewer:
      return "viewer";
    case Role::kSubmitter:
      return "submitter";
    case Role::kAdmin:
      return "admin";
    case Role::kWorker:
      return "worker";
  }
  return "";
}

std::optional<Role> RoleOf(const std::string& name) {
  for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kAdmin, Role::kWorker}) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

bool MayDo(Role has, Role needed) {
  if (has == Role::kWorker || needed == Role::kWorker) return has == needed || has == Role::kAdmin;
  return has >= needed;
}

}  // namespace genesis
