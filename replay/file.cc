#include "replay/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/files/errno_status.h"

namespace genesis {
ReplayFile::~ReplayFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<ReplayFile> ReplayFile::OpenToRead(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return ErrnoStatus(absl::StrCat(path, ": cannot be opened"), errno);
  ReplayFile file(path, fd);
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  return file;
}

absl::StatusOr<ReplayFile> ReplayFile::OpenToWrite(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0644);
  if (fd < 0) return ErrnoStatus(absl::StrCat(path, ": cannot be opened to write"), errno);
  return ReplayFile(path, fd);
}

// Does not use O_TMPFILE, which some file systems lack.
absl::StatusOr<ReplayFile> ReplayFile::Unnamed(const std::string& folder) {
  std::string path = absl::StrCat(folder, "/.part-XXXXXX");
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(absl::StrCat(path, ": cannot be created"), errno);
  ReplayFile file(path, fd);
  if (unlink(path.c_str()) != 0) return file.Fault("cannot be removed");
  return file;
}

absl::Status ReplayFile::Fault(const char* what) const {
  return ErrnoStatus(absl::StrCat(path_, ": ", what), errno);
}

absl::Status ReplayFile::Read(uint64_t offset, uint64_t size, void* out) const {
  char* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = pread(fd_, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fault("reading failed");
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": ends before byte ", offset + size));
    }
    at += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ReplayFile::Write(uint64_t offset, const void* data, uint64_t size) const {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = pwrite(fd_, at, size, static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Fault("writing failed");
    at += wrote;
    offset += static_cast<uint64_t>(wrote);
    size -= static_cast<uint64_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status ReplayFile::Truncate(uint64_t size) const {
  return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? absl::OkStatus()
                                                       : Fault("cutting it failed");
}

absl::Status ReplayFile::Sync() const {
  return fsync(fd_) == 0 ? absl::OkStatus() : Fault("syncing failed");
}

absl::StatusOr<uint64_t> ReplayFile::Size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return Fault("its size cannot be read");
  return static_cast<uint64_t>(info.st_size);
}

bool ReplayFile::TryLock() const { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }

}  // namespace genesis
