#pragma once

#include <optional>
#include <string>

namespace genesis {

// The rights of a caller. Viewer, submitter and admin each may do all that those before them may; a
// worker may attach to the daemon and nothing else, and an admin may that too.
enum class Role { kViewer, kSubmitter, kAdmin, kWorker };

inline constexpr char kRoleNames[] = "viewer, submitter, admin or worker";

// "viewer", "submitter", "admin", "worker"; nullopt for any other word.
const char* RoleName(Role role);
std::optional<Role> RoleOf(const std::string& name);

// Whether who has the role `has` may do what needs `needed`.
bool MayDo(Role has, Role needed);

}  // namespace genesis
