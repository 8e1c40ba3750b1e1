#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file of a replay buffer: an open file descriptor, closed by the destructor.
//
// Threads: any may call Read. Failure: statuses of ErrnoStatus that begin with the path.
// OpenToRead also returns INVALID_ARGUMENT if the path is not a regular file.
class ReplayFile {
 public:
  static absl::StatusOr<ReplayFile> OpenToRead(const std::string& path);
  // Creates the file if it does not exist. `flags` are further flags for open(2).
  static absl::StatusOr<ReplayFile> OpenToWrite(const std::string& path, int flags);
  // Creates a file without a name in the folder. It disappears when its descriptor is closed.
  static absl::StatusOr<ReplayFile> Unnamed(const std::string& folder);
  ReplayFile() = default;
  ReplayFile(ReplayFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  ReplayFile& operator=(ReplayFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ReplayFile();

  // DATA_LOSS if the range is not in the file.
  absl::Status Read(uint64_t offset, uint64_t size, void* out) const;
  absl::Status Write(uint64_t offset, const void* data, uint64_t size) const;
  absl::Status Truncate(uint64_t size) const;
  absl::Status Sync() const;
  absl::StatusOr<uint64_t> Size() const;
  // Takes the lock (flock). Returns false if another open file descriptor holds it.
  bool TryLock() const;
  const std::string& path() const { return path_; }

 private:
  ReplayFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Fault(const char* what) const;

  std::string path_;
  int fd_ = -1;
};

}  // namespace genesis
