#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/files/beneath.h"
#include "genesis/training/v1/job.pb.h"
#include "server/base/io_threads.h"

namespace genesis {

// The checkpoint files. The daemon serves, links, removes and imports them, but
// never parses their content.
//
// Owner: the daemon; outlives every call. Threads: any; blocking tasks are posted to threads of its
// own. Failure: statuses that name the file.
class CheckpointFiles {
 public:
  static constexpr int kMaxDownloads = 32;
  static constexpr int kMaxImports = 4;

  struct Options {
    std::string dir;
    std::string verifier;  // genesis-worker: `verifier --verify FILE` checks a whole file.
    int64_t max_import_bytes = int64_t{64} << 30;
    absl::Duration verify_timeout = absl::Minutes(10);
  };
  // Removes the temporary files of imports that an earlier process left behind.
  explicit CheckpointFiles(Options options);
  ~CheckpointFiles();
  // Ends the verifier processes; their callers receive UNAVAILABLE.
  void Stop() { stopping_ = true; }

  const Options& options() const { return options_; }

  // Runs a task that blocks on the disk.
  void Post(std::function<void()> task) { threads_.Post(std::move(task)); }
  // Runs a task that waits until a verifier process has read a whole file.
  void PostLong(std::function<void()> task) { long_threads_.Post(std::move(task)); }

  // Reserves a download. RESOURCE_EXHAUSTED if there are too many.
  absl::Status BeginDownload();
  void EndDownload() { --downloads_; }

  // Reserves an import. ALREADY_EXISTS if the ID is being imported, RESOURCE_EXHAUSTED if there are
  // too many imports or the file is too large.
  absl::Status BeginImport(const std::string& id, int64_t size_bytes);
  void EndImport(const std::string& id);

  // The methods below block on the disk.

  // Opens the file for reading. NOT_FOUND if it is gone.
  absl::StatusOr<FileHandle> Open(const training::v1::Checkpoint& checkpoint) const;
  // Links the file and its manifest to a second name, durably, and returns the new path. The link
  // stays when the first name is removed. ALREADY_EXISTS if the name is taken, FAILED_PRECONDITION
  // for a sharded checkpoint.
  absl::StatusOr<std::string> Link(const training::v1::Checkpoint& checkpoint,
                                   const std::string& id) const;
  // Removes the file, its manifest and its shards. OK if they are already gone.
  absl::Status Remove(const training::v1::Checkpoint& checkpoint) const;
  // Verifies the file in a separate process. INVALID_ARGUMENT with the process's message if the
  // checkpoint is damaged or cannot be read in time.
  absl::Status Verify(const std::string& path, const std::string& id) const;

 private:
  const Options options_;
  std::atomic<int> downloads_{0};
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::set<std::string> importing_ ABSL_GUARDED_BY(mutex_);
  IoThreads threads_;  // Last, because their tasks use the members above.
  IoThreads long_threads_;
};

// Returns "<dir>/<id>.pt". Its manifest is in the same folder.
std::string CheckpointPath(const std::string& dir, const std::string& id);
std::string ManifestPathOf(const std::string& path);

// Returns "" if a user may give a checkpoint this ID, otherwise what is accepted: lower-case
// letters, digits and '-', but no name that a job would give its own checkpoint.
std::string CheckpointIdFault(const std::string& id);

}  // namespace genesis
