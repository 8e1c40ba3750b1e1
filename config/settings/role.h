#pragma once

#include <optional>
#include <string>

namespace genesis {

// The rights of a caller. Each of viewer, submitter and admin includes the rights of the one
// before. A worker may only attach to the daemon, as an admin may too.
enum class Role { kViewer, kSubmitter, kAdmin, kWorker };

inline constexpr char kRoleNames[] = "viewer, submitter, admin or worker";

// Return the role's name, or the role of a name; nullopt for any other word.
const char* RoleName(Role role);
std::optional<Role> RoleOf(const std::string& name);

// Returns true if a caller with role `has` may call a method that requires `needed`.
bool MayDo(Role has, Role needed);

}  // namespace genesis
