#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// The daemon's folder, used by one daemon at a time. The lock is flock on the folder and on
// <dir>/genesisd.lock, which names the process and which earlier versions lock. The kernel releases
// both when the process ends, in whatever way.
class DataDir {
 public:
  // Creates the folder with its parents, takes the lock and checks that the folder is writable.
  // ALREADY_EXISTS if another daemon holds it (the message names its process), RESOURCE_EXHAUSTED
  // if the disk has no space, FAILED_PRECONDITION otherwise.
  static absl::StatusOr<std::unique_ptr<DataDir>> Acquire(const std::string& path);
  ~DataDir();
  DataDir(const DataDir&) = delete;
  DataDir& operator=(const DataDir&) = delete;

 private:
  DataDir(int lock_fd, int folder_fd) : lock_fd_(lock_fd), folder_fd_(folder_fd) {}

  const int lock_fd_;
  const int folder_fd_;
};

}  // namespace genesis
