#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace genesis {

// A file that appears under its name only when complete and durable: it is written under a
// temporary name in the same folder, synced and renamed, and the folder is synced. Without Commit,
// no file remains.
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

  // Does nothing after an error. Starts writeback early, so that Commit has little left to sync.
  void Write(const void* data, uint64_t size);
  absl::Status Commit();

  uint64_t size() const { return size_; }
  // Returns the path that holds the bytes until Commit.
  const std::string& temporary() const { return temporary_; }
  // Returns the first error, or OK.
  const absl::Status& status() const { return status_; }

 private:
  DurableFile(std::string path, std::string temporary, std::string full_cure, int fd);
  void Fail(const char* what);

  std::string path_;
  std::string temporary_;
  std::string full_cure_;
  int fd_ = -1;
  uint64_t size_ = 0;
  uint64_t begun_ = 0;  // Bytes for which writeback was started.
  absl::Status status_;
};

// Writes `bytes` as the whole content of a file, durably.
absl::Status WriteDurably(const std::string& path, const std::string& bytes);

// Makes the names in a folder durable (fsync).
absl::Status SyncFolder(const std::string& folder);

}  // namespace genesis
