#pragma once

#include <string>

#include "absl/status/status.h"

namespace genesis {

// Returns the status of a failed system call on a file: NOT_FOUND (ENOENT, ENOTDIR),
// PERMISSION_DENIED (EACCES, EPERM, EROFS), ALREADY_EXISTS (EEXIST, ENOTEMPTY), RESOURCE_EXHAUSTED
// for a full disk, a file at its size limit or no free file descriptor, otherwise UNKNOWN. The text
// is `what` and the error: "data.npz: writing failed: No space left on device". If the disk is
// full, `full_cure` follows.
absl::Status ErrnoStatus(const std::string& what, int error,
                         const std::string& full_cure = "free space there");

}  // namespace genesis
