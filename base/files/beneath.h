#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file descriptor, closed by the destructor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileHandle();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Returns a status with the path and the text of errno: NOT_FOUND also for a path that leaves its
// root or has a symbolic link, INVALID_ARGUMENT for a path that is too long, otherwise the code of
// ErrnoStatus.
absl::Status FileFault(const std::string& path, int error);

// Opens a file or folder below `root`. NOT_FOUND if the path contains a symbolic link or a ".."
// that leads out of `root` (openat2 refuses both). Other errors: see FileFault.
absl::StatusOr<FileHandle> OpenBeneath(const std::string& root, const std::string& relative,
                                       int flags, mode_t mode = 0);

// Returns `path` relative to `root`, or NOT_FOUND if it does not begin with `root`.
absl::StatusOr<std::string> RelativeTo(const std::string& root, const std::string& path);

}  // namespace genesis
