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

// The files of checkpoints, as far as the daemon handles them: it serves, links and removes them,
// and takes new ones, and never looks inside one.
//
// Owner: the daemon; outlives every call. Threads: any; what waits for the disk is posted to
// threads of its own. Failure: statuses that name the file.
class CheckpointFiles {
 public:
  static constexpr int kMaxDownloads = 32;
  static constexpr int kMaxImports = 4;

  struct Options {
    std::string dir;
    std::string verifier;  // genesis-worker: `verifier --verify FILE` reads a file from end to end.
    int64_t max_import_bytes = int64_t{64} << 30;
    absl::Duration verify_timeout = absl::Minutes(10);
  };
  // Removes what imports of an earlier process left.
  explicit CheckpointFiles(Options options);
  ~CheckpointFiles();
  // Ends the processes that read files; whoever waits for one gets UNAVAILABLE.
  void Stop() { stopping_ = true; }

  const Options& options() const { return options_; }

  // Runs a task that waits for the disk.
  void Post(std::function<void()> task) { threads_.Post(std::move(task)); }
  // Runs a task that waits for a whole file to be read by another process.
  void PostLong(std::function<void()> task) { long_threads_.Post(std::move(task)); }

  // A download in progress; RESOURCE_EXHAUSTED when there are too many.
  absl::Status BeginDownload();
  void EndDownload() { --downloads_; }

  // An import in progress: ALREADY_EXISTS when the id is being imported, RESOURCE_EXHAUSTED when
  // there are too many or the file is too large.
  absl::Status BeginImport(const std::string& id, int64_t size_bytes);
  void EndImport(const std::string& id);

  // The methods below wait for the disk.

  // NOT_FOUND when the file is gone.
  absl::StatusOr<FileHandle> Open(const training::v1::Checkpoint& checkpoint) const;
  // A second name for the file, which stays when the first goes; its manifest too. Durable.
  // ALREADY_EXISTS when the name is taken, FAILED_PRECONDITION for one in shards. Returns the new
  // path.
  absl::StatusOr<std::string> Link(const training::v1::Checkpoint& checkpoint,
                                   const std::string& id) const;
  // The file, its manifest and its shards; fine when they are gone.
  absl::Status Remove(const training::v1::Checkpoint& checkpoint) const;
  // Reads the file by another process. INVALID_ARGUMENT with its words when it is no sound
  // checkpoint or cannot be read in time.
  absl::Status Verify(const std::string& path, const std::string& id) const;

 private:
  const Options options_;
  std::atomic<int> downloads_{0};
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::set<std::string> importing_ ABSL_GUARDED_BY(mutex_);
  IoThreads threads_;  // Last: their tasks use what is above.
  IoThreads long_threads_;
};

// "<dir>/<id>.pt"; its manifest is beside it.
std::string CheckpointPath(const std::string& dir, const std::string& id);
std::string ManifestPathOf(const std::string& path);

// "" when a user may call a checkpoint so, else what is accepted: not the form of those that jobs
// write.
std::string CheckpointIdFault(const std::string& id);

}  // namespace genesis
