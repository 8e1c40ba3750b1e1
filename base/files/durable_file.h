#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file that appears under its name only whole and durable: written beside it under a name of its
// own, synced, renamed, and the folder synced. Without Commit nothing is left behind.
//
// Owner: one writer. Threads: one. Failure: the first error is kept and Commit returns it;
// RESOURCE_EXHAUSTED when the disk is full.
class DurableFile {
 public:
  // `full_cure`: see ErrnoStatus.
  static absl::StatusOr<DurableFile> Create(const std::string& path,
                                            const std::string& full_cure = "free space there");
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  // After an error does nothing. The disk begins at once, so that Commit finds little left to do.
  void Write(const void* data, uint64_t size);
  absl::Status Commit();

  uint64_t size() const { return size_; }
  // Where the bytes are until Commit.
  const std::string& temporary() const { return temporary_; }
  // The first error, or OK.
  const absl::Status& status() const { return status_; }

 private:
  DurableFile(std::string path, std::string temporary, std::string full_cure, int fd);
  void Fail(const char* what);

  std::string path_;
  std::string temporary_;
  std::string full_cure_;
  int fd_ = -1;
  uint64_t size_ = 0;
  uint64_t begun_ = 0;  // That the disk was asked to write.
  absl::Status status_;
};

// Makes `bytes` the whole content of a file, durably.
absl::Status WriteDurably(const std::string& path, const std::string& bytes);

}  // namespace genesis
