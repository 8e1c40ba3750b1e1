#include "base/files/errno_status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace genesis {

absl::Status ErrnoStatus(const std::string& what, int error, const std::string& full_cure) {
  const std::string message = absl::StrCat(what, ": ", strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(message, "; ", full_cure));
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(message, "; raise the limit on the size of files (ulimit -f) there"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnknownError(message);
  }
}

}  // namespace genesis
