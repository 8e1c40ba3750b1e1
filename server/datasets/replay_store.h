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
#include "replay/replay_writer.h"
#include "server/auth/dataset_owners.h"
#include "server/base/io_threads.h"
#include "server/datasets/append_batch.h"

namespace genesis {

// The replay buffers below the dataset root to which the daemon appends. Opening a writer reads the
// last segment, so writers stay open. At kMaxOpen, the least recently used one is closed.
//
// Owner: the daemon; outlives every stream. Threads: any; a mutex per dataset serializes its
// appends, and no thread holds two of them. Failure: the statuses of ReplayWriter. After an error
// that the batch did not cause, the writer is closed, and the next append opens the buffer again.
class ReplayStore {
 public:
  static constexpr int kMaxOpen = 16;
  static constexpr int kMaxStreams = 32;
  static constexpr int64_t kDefaultCapacity = 1'000'000;

  struct Result {
    Appended appended;
    int64_t size = 0;  // Transitions in the buffer.
  };

  // Sets the sizes of the buffers in `owners`.
  explicit ReplayStore(DatasetOwners* owners);
  ~ReplayStore();

  const std::string& root() const { return owners_->root(); }

  // Returns the columns of a buffer that exists. INVALID_ARGUMENT if there is none,
  // PERMISSION_DENIED unless the caller may append to it. Blocks on the disk.
  absl::StatusOr<ReplayLayout> LayoutOf(const AppendTarget& target) const;
  // Returns the error of the caller's rights or quota with which an append of the batch would fail
  // now; OK if neither prevents it.
  absl::Status CheckRoom(const AppendTarget& target, const ReplayBatch& batch) const;

  // Appends the batch, durably when OK is returned. Blocks on the disk. A buffer that does not
  // exist is created and belongs to the caller. Requires the columns of the target.
  absl::StatusOr<Result> Append(const AppendTarget& target, ReplayBatch batch);

  // Runs a task on a thread that may block on the disk. A stream must post one at a time.
  void Post(std::function<void()> task) { threads_.Post(std::move(task)); }

  // Reserves a stream; RESOURCE_EXHAUSTED above kMaxStreams, because each holds a message in
  // memory.
  absl::Status BeginStream();
  void EndStream() { --streams_; }

  // Registers a stream that appends to a dataset, from its first batch to its end.
  // FAILED_PRECONDITION while the dataset is being removed.
  absl::Status Join(const std::string& dataset);
  void Leave(const std::string& dataset);

  // Closes the dataset's buffer and runs `removal` while no stream can open it. FAILED_PRECONDITION
  // if a stream appends to it. Blocks on the disk.
  absl::Status Remove(const std::string& dataset, const std::function<absl::Status()>& removal);

  // Returns the number of open writers, for tests.
  size_t open() const;

 private:
  struct Buffer {
    absl::Mutex mutex;
    std::unique_ptr<ReplayWriter> writer ABSL_GUARDED_BY(mutex);
    // Layout and capacity with which `writer` was opened.
    ReplayLayout layout ABSL_GUARDED_BY(mutex);
    int64_t capacity ABSL_GUARDED_BY(mutex) = 0;
    int users = 0;          // Guarded by the store's mutex, like the next member.
    uint64_t last_use = 0;  // Value of `uses_` at the last use.
  };

  std::shared_ptr<Buffer> Take(const std::string& dataset);
  void GiveBack(Buffer& buffer);
  void CloseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsNew(const std::string& dataset) const;
  // Returns OK if the caller may append to the buffer, after making the caller the owner of a new
  // one.
  absl::Status Admit(const AppendTarget& target) const;
  absl::Status Open(const AppendTarget& target, Buffer& buffer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(buffer.mutex);

  DatasetOwners* const owners_;
  std::atomic<int> streams_{0};
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> joined_ ABSL_GUARDED_BY(mutex_);  // Streams by dataset.
  std::set<std::string> removing_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads threads_;  // Last, because its tasks use the members above.
};

}  // namespace genesis
