#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file handle that is closed with its owner.
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

// A status that names the file and says what errno does: NOT_FOUND, PERMISSION_DENIED,
// RESOURCE_EXHAUSTED for a full disk, ALREADY_EXISTS, INVALID_ARGUMENT for a path that is too long,
// else UNKNOWN.
absl::Status FileFault(const std::string& path, int error);

// Opens a file or folder below a folder. Neither ".." nor any link on the way leads out of it: the
// kernel refuses to follow one (openat2). Statuses of FileFault; a link or a way out is NOT_FOUND.
absl::StatusOr<FileHandle> OpenBeneath(const std::string& root, const std::string& relative,
                                       int flags, mode_t mode = 0);

// `path` as seen from `root`, or NOT_FOUND when it does not begin with it.
absl::StatusOr<std::string> RelativeTo(const std::string& root, const std::string& path);

}  // namespace genesis
