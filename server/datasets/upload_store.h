#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/files/beneath.h"
#include "base/files/sha256.h"
#include "genesis/training/v1/operations.pb.h"
#include "server/base/io_threads.h"

namespace genesis {

// The files that clients sent for their jobs: <root>/uploads/<SHA-256>.<kind>, each under that name
// only whole and durable. One that is not whole is a hidden file beside them, which outlives the
// daemon and is continued by whoever sends the rest; one that nobody continued for a week is
// removed at the next start.
//
// The SHA-256 is computed along the way, at most kHashBytes in one call: no call waits for a whole
// file.
//
// Owner: the daemon. Threads: any; one call at a time for each file. Failure: as the proto says of
// StartUpload and WriteUpload.
class UploadStore {
 public:
  static constexpr int64_t kMaxPieceBytes = int64_t{2} << 20;
  static constexpr int64_t kHashBytes = int64_t{64} << 20;
  // Files with a computation under way; beyond them the oldest begins anew when it is continued.
  static constexpr size_t kMaxHashes = 256;
  static constexpr size_t kMaxWaiting = 32;

  // As a client announced it.
  struct File {
    std::string sha256;
    std::string kind;
    int64_t size_bytes = 0;
  };

  // `max_bytes`: what all files may take together.
  UploadStore(std::string root, int64_t max_bytes);

  // Both wait for the disk.
  absl::StatusOr<training::v1::Upload> Start(const File& file);
  absl::StatusOr<training::v1::Upload> Write(const File& file, int64_t offset,
                                             absl::string_view piece);

  // Runs a task on a thread that may wait for the disk. Each holds a piece, so their number has a
  // bound: UNAVAILABLE above it.
  absl::Status Post(std::function<void()> task);

 private:
  // A SHA-256 of the first bytes of a file.
  struct Hash {
    Sha256Stream stream;
    int64_t bytes = 0;
    uint64_t last_use = 0;
    bool busy = false;
  };
  class Turn;

  absl::StatusOr<FileHandle> OpenFolder() const;
  // The whole file, or NOT_FOUND.
  absl::StatusOr<training::v1::Upload> FindWhole(const FileHandle& folder, const File& file) const;
  // RESOURCE_EXHAUSTED where `more` bytes would be too many for the quota or the disk.
  absl::Status CheckSpace(const FileHandle& folder, const File& file, int64_t more) const;
  absl::StatusOr<training::v1::Upload> Continue(const FileHandle& folder, const File& file,
                                                const FileHandle& partial, int64_t received,
                                                Hash& hash) const;
  absl::Status Publish(const FileHandle& folder, const File& file, const FileHandle& partial) const;

  const std::string root_;
  const int64_t max_bytes_;
  absl::Mutex mutex_;
  // By the name of the partial file.
  std::map<std::string, std::unique_ptr<Hash>> hashes_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads threads_;  // Last: its tasks use what is above.
};

}  // namespace genesis
