#include "base/files/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/errno_status.h"
#include "base/text/text.h"

namespace genesis {

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileFault(const std::string& path, int error) {
  const std::string told = OneLine(path, kMaxLineBytes);
  switch (error) {
    case EXDEV:
    case ELOOP:
      return absl::NotFoundError(
          absl::StrCat(told, ": leads out of its folder or by a link; accepted: a file below it"));
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(
          absl::StrCat(told, ": ", strerror(error), "; accepted: at most ", NAME_MAX,
                       " bytes between two slashes, ", PATH_MAX - 1, " in all"));
    default:
      return ErrnoStatus(told, error);
  }
}

absl::StatusOr<FileHandle> OpenBeneath(const std::string& root, const std::string& relative,
                                       int flags, mode_t mode) {
  const FileHandle folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.fd() < 0) return FileFault(root, errno);
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = syscall(SYS_openat2, folder.fd(), relative.c_str(), &how, sizeof(how));
  if (fd < 0) return FileFault(absl::StrCat(root, "/", relative), errno);
  return FileHandle(static_cast<int>(fd));
}

absl::StatusOr<std::string> RelativeTo(const std::string& root, const std::string& path) {
  const std::string prefix = root + "/";
  if (!absl::StartsWith(path, prefix)) {
    return absl::NotFoundError(absl::StrCat(path, ": is not in the folder ", root));
  }
  return path.substr(prefix.size());
}

}  // namespace genesis
