#include "base/files/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/errno_status.h"

namespace genesis {
namespace {

constexpr uint64_t kSyncPiece = uint64_t{8} << 20;

}  // namespace

absl::StatusOr<DurableFile> DurableFile::Create(const std::string& path,
                                                const std::string& full_cure) {
  static std::atomic<int> serial{0};
  const std::filesystem::path target(path);
  const std::string name =
      absl::StrCat(".", target.filename().string(), ".tmp-", getpid(), "-", serial.fetch_add(1));
  const std::string temporary = (target.parent_path() / name).string();
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(absl::StrCat(temporary, ": cannot be created"), errno, full_cure);
  return DurableFile(path, temporary, full_cure, fd);
}

DurableFile::DurableFile(std::string path, std::string temporary, std::string full_cure, int fd)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      full_cure_(std::move(full_cure)),
      fd_(fd) {}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      full_cure_(std::move(other.full_cure_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      begun_(other.begun_),
      status_(std::move(other.status_)) {}

DurableFile::~DurableFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void DurableFile::Fail(const char* what) {
  if (status_.ok()) {
    status_ = ErrnoStatus(absl::StrCat(path_, ": ", what, " failed after ", size_, " bytes"), errno,
                          full_cure_);
  }
}

void DurableFile::Write(const void* data, uint64_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0 && status_.ok()) {
    const ssize_t wrote = write(fd_, at, std::min(size, kSyncPiece));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Fail("writing");
    at += wrote;
    size -= static_cast<uint64_t>(wrote);
    size_ += static_cast<uint64_t>(wrote);
    if (size_ - begun_ < kSyncPiece) continue;
    // Only a hint, so errors are ignored: the final sync reports them.
    sync_file_range(fd_, static_cast<off_t>(begun_), static_cast<off_t>(size_ - begun_),
                    SYNC_FILE_RANGE_WRITE);
    begun_ = size_;
  }
}

absl::Status DurableFile::Commit() {
  if (status_.ok() && fsync(fd_) != 0) Fail("syncing");
  if (status_.ok() && rename(temporary_.c_str(), path_.c_str()) != 0) Fail("renaming");
  if (!status_.ok()) return status_;
  temporary_.clear();
  // The new name is durable only once its folder is synced.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0) Fail("syncing the folder");
  if (fd >= 0) close(fd);
  return status_;
}

absl::Status WriteDurably(const std::string& path, const std::string& bytes) {
  absl::StatusOr<DurableFile> file = DurableFile::Create(path);
  if (!file.ok()) return file.status();
  file->Write(bytes.data(), bytes.size());
  return file->Commit();
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(absl::StrCat(folder, ": cannot be opened"), errno);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus()
                     : ErrnoStatus(absl::StrCat(folder, ": syncing failed"), error);
}

}  // namespace genesis
