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
#include "server/auth/dataset_owners.h"
#include "server/base/io_threads.h"

namespace genesis {

// The files that clients uploaded for their jobs: <root>/uploads/<SHA-256>.<kind>. A file gets this
// name only when it is complete and durable. An incomplete upload is a hidden file in the same
// folder. It survives the daemon, and its owners can continue it. A start of the daemon removes it
// after a week without progress.
//
// The SHA-256 is computed incrementally, at most kHashBytes per call, so that no call waits for a
// whole file to be hashed.
//
// Owner: the daemon. Threads: any; one call at a time for each file. Failure: the statuses
// documented in the proto for StartUpload and WriteUpload.
class UploadStore {
 public:
  static constexpr int64_t kMaxPieceBytes = int64_t{2} << 20;
  static constexpr int64_t kHashBytes = int64_t{64} << 20;
  // Maximum number of files with a hash in progress. Above it, the least recently used hash is
  // dropped and starts again when its upload continues.
  static constexpr size_t kMaxHashes = 256;
  static constexpr size_t kMaxWaiting = 32;

  // A file as announced by the client.
  struct File {
    std::string sha256;
    std::string kind;
    int64_t size_bytes = 0;
  };

  // `max_bytes` is the limit of all files together. Sets the sizes of the files in `owners`; an
  // incomplete one counts with the size that was announced.
  UploadStore(DatasetOwners* owners, int64_t max_bytes);

  // Both block on the disk. Start makes the caller an owner of the file, unless the file is
  // complete and has no owner.
  absl::StatusOr<training::v1::Upload> Start(const Caller& caller, const File& file);
  absl::StatusOr<training::v1::Upload> Write(const Caller& caller, const File& file, int64_t offset,
                                             absl::string_view piece);

  // Removes the incomplete uploads of the dataset "uploads/SHA256.KIND", by the rules of
  // DatasetOwners::Delete. NOT_FOUND if there is none, PERMISSION_DENIED for a caller who may not
  // change it, ABORTED while a call writes to it. Blocks on the disk.
  absl::Status RemoveIncomplete(const Caller& caller, const std::string& dataset);

  // Runs a task on a thread that may block on the disk. UNAVAILABLE above kMaxWaiting tasks,
  // because each holds a piece in memory.
  absl::Status Post(std::function<void()> task);

 private:
  // The SHA-256 of the first bytes of a file, and the number of these bytes.
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
  // Returns RESOURCE_EXHAUSTED if `more` bytes exceed the limit or the free space.
  absl::Status CheckSpace(const FileHandle& folder, const File& file, int64_t more) const;
  absl::StatusOr<training::v1::Upload> Continue(const FileHandle& folder, const File& file,
                                                const FileHandle& partial, int64_t received,
                                                Hash& hash) const;
  absl::Status Publish(const FileHandle& folder, const File& file, const FileHandle& partial) const;

  DatasetOwners* const owners_;
  const std::string root_;
  const int64_t max_bytes_;
  // Held by Start and by the final rename, so that an owner added in between is not lost.
  mutable absl::Mutex names_;
  absl::Mutex mutex_;
  // Keyed by the name of the partial file.
  std::map<std::string, std::unique_ptr<Hash>> hashes_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads threads_;  // Last, because its tasks use the members above.
};

}  // namespace genesis
