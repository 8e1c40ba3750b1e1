#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "replay/replay_writer.h"
#include "server/base/io_threads.h"
#include "server/datasets/append_batch.h"

namespace genesis {

// The replay buffers below the dataset root that the daemon appends to. Opening a writer reads its
// last segment, so writers stay open; the one that was used longest ago is closed when there are
// too many.
//
// Owner: the daemon; outlives every stream. Threads: any; a mutex per dataset lets one append at a
// time into each, and none is held for two datasets. Failure: the statuses of ReplayWriter; after
// one that is no fault of the batch the writer is closed, and the next append opens the buffer
// anew.
class ReplayStore {
 public:
  static constexpr int kMaxOpen = 16;
  static constexpr int kMaxStreams = 32;
  static constexpr int64_t kDefaultCapacity = 1'000'000;

  struct Result {
    Appended appended;
    int64_t size = 0;  // Transitions in the buffer.
  };

  explicit ReplayStore(std::string root);
  ~ReplayStore();

  const std::string& root() const { return root_; }

  // Waits for the disk; durable when it returns OK.
  absl::StatusOr<Result> Append(const AppendTarget& target, const std::string& batch_id,
                                absl::Span<const ReplayTransition> transitions);

  // Runs a task on a thread that may wait for the disk. A stream has at most one posted.
  void Post(std::function<void()> task) { threads_.Post(std::move(task)); }

  // Every stream holds a batch in memory, so their number has a bound: RESOURCE_EXHAUSTED above it.
  absl::Status BeginStream();
  void EndStream() { --streams_; }

  // A stream appends to a dataset, from its first batch to its end: FAILED_PRECONDITION while the
  // dataset is being removed.
  absl::Status Join(const std::string& dataset);
  void Leave(const std::string& dataset);

  // Closes the dataset's buffer and runs `removal` while nobody can open it. FAILED_PRECONDITION
  // while a stream appends to it. Waits for the disk.
  absl::Status Remove(const std::string& dataset, const std::function<absl::Status()>& removal);

  // Writers that are open; for tests.
  size_t open() const;

 private:
  struct Buffer {
    absl::Mutex mutex;
    std::unique_ptr<ReplayWriter> writer ABSL_GUARDED_BY(mutex);
    // The status of the writer.
    ReplayLayout layout ABSL_GUARDED_BY(mutex);
    int64_t capacity ABSL_GUARDED_BY(mutex) = 0;
    int users = 0;          // Guarded by the store's mutex, as is the next.
    uint64_t last_use = 0;  // The larger, the later.
  };

  std::shared_ptr<Buffer> Take(const std::string& dataset);
  void GiveBack(Buffer& buffer);
  void CloseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Open(const AppendTarget& target, Buffer& buffer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(buffer.mutex);

  const std::string root_;
  std::atomic<int> streams_{0};
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> joined_ ABSL_GUARDED_BY(mutex_);  // Streams by dataset.
  std::set<std::string> removing_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads threads_;  // Last: its tasks use what is above.
};

}  // namespace genesis
