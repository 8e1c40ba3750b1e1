#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file descriptor that is closed with its owner, and what a log needs of a file system.
//
// Owner: one. Threads: Read from any. Failure: statuses that begin with the path: NOT_FOUND,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED when the disk is full, else UNKNOWN.
class ReplayFile {
 public:
  static absl::StatusOr<ReplayFile> OpenToRead(const std::string& path);
  // Creates it where it is missing; `flags` are added to open's.
  static absl::StatusOr<ReplayFile> OpenToWrite(const std::string& path, int flags);
  ReplayFile() = default;
  ReplayFile(ReplayFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  ReplayFile& operator=(ReplayFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ReplayFile();

  // DATA_LOSS when the range is not in the file.
  absl::Status Read(uint64_t offset, uint64_t size, void* out) const;
  absl::Status Write(uint64_t offset, const void* data, uint64_t size) const;
  absl::Status Truncate(uint64_t size) const;
  absl::Status Sync() const;
  absl::StatusOr<uint64_t> Size() const;
  // False when another process or owner holds the lock.
  bool TryLock() const;
  const std::string& path() const { return path_; }

 private:
  ReplayFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Fault(const char* what) const;

  std::string path_;
  int fd_ = -1;
};

// Makes the names in a folder durable.
absl::Status SyncFolder(const std::string& folder);

}  // namespace genesis
