#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// The daemon's folder, held by one daemon at a time (flock on the folder itself and on
// <dir>/genesisd.lock, which names the process and which earlier versions lock; the kernel gives
// both back when the process ends, however it ends).
class DataDir {
 public:
  // Creates the folder with its parents, takes the lock and proves that the folder can be written.
  // ALREADY_EXISTS when another daemon holds it (the message names its process),
  // RESOURCE_EXHAUSTED when the disk has no space, FAILED_PRECONDITION for anything else.
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
