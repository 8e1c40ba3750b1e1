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

// The files that clients uploaded for their jobs: <root>/uploads/<SHA-256>.<kind>, under that name
// only when complete and durable. An incomplete upload is a hidden file beside them, which outlives
// the daemon and which any client can continue. The next start removes it after a week without
// progress.
//
// The SHA-256 is computed incrementally, at most kHashBytes per call: no call waits for a whole
// file.
//
// Owner: the daemon. Threads: any; one call at a time for each file. Failure: the statuses
// documented in the proto for StartUpload and WriteUpload.
class UploadStore {
 public:
  static constexpr int64_t kMaxPieceBytes = int64_t{2} << 20;
  static constexpr int64_t kHashBytes = int64_t{64} << 20;
  // Files with a hash in progress. Beyond them the least recently used hash starts again when
  // continued.
  static constexpr size_t kMaxHashes = 256;
  static constexpr size_t kMaxWaiting = 32;

  // A file as the client announced it.
  struct File {
    std::string sha256;
    std::string kind;
    int64_t size_bytes = 0;
  };

  // `max_bytes`: limit of all files together.
  UploadStore(std::string root, int64_t max_bytes);

  // Both block on the disk.
  absl::StatusOr<training::v1::Upload> Start(const File& file);
  absl::StatusOr<training::v1::Upload> Write(const File& file, int64_t offset,
                                             absl::string_view piece);

  // Runs a task on a thread that may block on the disk. Each holds a piece, so their number is
  // bounded: UNAVAILABLE above it.
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
  // Returns the complete file, or NOT_FOUND.
  absl::StatusOr<training::v1::Upload> FindWhole(const FileHandle& folder, const File& file) const;
  // RESOURCE_EXHAUSTED if `more` bytes exceed the quota or the free space.
  absl::Status CheckSpace(const FileHandle& folder, const File& file, int64_t more) const;
  absl::StatusOr<training::v1::Upload> Continue(const FileHandle& folder, const File& file,
                                                const FileHandle& partial, int64_t received,
                                                Hash& hash) const;
  absl::Status Publish(const FileHandle& folder, const File& file, const FileHandle& partial) const;

  const std::string root_;
  const int64_t max_bytes_;
  absl::Mutex mutex_;
  // Keyed by the name of the partial file.
  std::map<std::string, std::unique_ptr<Hash>> hashes_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads threads_;  // Last, because its tasks use the members above.
};

}  // namespace genesis
