#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/write_checkpoint.h"

namespace genesis {

// A checkpoint that is durable and was read back.
struct WrittenCheckpoint {
  std::string id;
  std::string path;
  int64_t step = 0;
  int64_t size = 0;                      // Of all its files.
  int shards = 0;                        // Files besides `path`.
  double seconds = 0;                    // Of writing, in the background.
  std::vector<std::string> removed_ids;  // By retention.
};

// Writes checkpoints while training goes on, one at a time: writes, reads back, syncs, renames,
// then removes what retention no longer keeps.
//
// Owner: the run; what the callback uses outlives it. The destructor waits for the write under way,
// and for shards of others some seconds.
// Threads: one submits; writing, retention and callbacks are on a thread of its own. Failure: the
// first error is kept and handed out once, by the next Submit or Flush; the state of a failed write
// is dropped, and nothing is left under its name. RESOURCE_EXHAUSTED on a full disk, OUT_OF_RANGE
// for a state that holds a NaN or an Inf.
class CheckpointWriter {
 public:
  // As in CheckpointFolder::Retain.
  struct Retention {
    int64_t keep_last = 1;
    int64_t keep_best = 0;
  };
  using Callback = std::function<void(const WrittenCheckpoint&)>;

  CheckpointWriter(CheckpointFolder folder, Retention retention);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Takes a state whose tensors nobody changes any more; they may still be on their way. Returns at
  // once, or, while another is being written, once that is done. The callback is called when this
  // one is durable. After an error the state is not taken.
  absl::Status Submit(TrainingState state, CheckpointMeta meta, Callback callback);

  // Waits until nothing is being written.
  absl::Status Flush();

  // Where several write one checkpoint together (CheckpointMeta::shard) each writes its shard, and
  // the first waits for those of others, then lists them. FlushShard waits until this one's is
  // durable, and keeps the error.
  absl::Status FlushShard();
  // From now on shards of others are waited for so long at most: all are durable, or somebody
  // failed.
  void ExpectShardsWithin(std::chrono::milliseconds limit);

  // That Submit waited, over all calls.
  double stalled_seconds() const;

 private:
  struct Job {
    TrainingState state;
    CheckpointMeta meta;
    Callback callback;
  };

  void Serve();
  absl::Status Write(const Job& job);
  absl::StatusOr<int64_t> WriteFiles(const Job& job, const std::string& path);
  absl::StatusOr<std::vector<ShardFile>> AwaitShards(const Job& job, const std::string& path);
  bool ShardIsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_ || shard_done_; }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_; }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return job_.has_value() || ending_; }
  absl::Status TakeError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CheckpointFolder folder_;
  const Retention retention_;
  mutable absl::Mutex mutex_;
  std::optional<Job> job_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // A job waits or is being written.
  bool shard_done_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::chrono::steady_clock::time_point> shards_due_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  double stalled_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace genesis
