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
  int64_t size = 0;                      // Total size of its files.
  int shards = 0;                        // Number of files in addition to `path`.
  double seconds = 0;                    // Duration of the write in the background.
  std::vector<std::string> removed_ids;  // Checkpoints removed by retention.
};

// A writer of checkpoints, one at a time while training continues: it writes, reads back, syncs,
// renames, then applies retention.
//
// Owner: the run; objects that the callback uses outlive it. The destructor waits for the current
// write, and some seconds for shards of other ranks.
// Threads: one submits; a background thread writes, applies retention and runs callbacks. Failure:
// the first error is kept and returned once, by the next Submit or Flush. The state of a failed
// write is dropped, and no incomplete file gets its name. RESOURCE_EXHAUSTED on a full disk,
// OUT_OF_RANGE for a state that holds a NaN or an Inf.
class CheckpointWriter {
 public:
  // See CheckpointFolder::Retain.
  struct Retention {
    int64_t keep_last = 1;
    int64_t keep_best = 0;
    CheckpointFolder::Badness badness = nullptr;  // Called on the background thread.
  };
  using Callback = std::function<void(const WrittenCheckpoint&)>;

  CheckpointWriter(CheckpointFolder folder, Retention retention);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Accepts a state whose tensors no longer change, even if copies are still in flight. Returns
  // immediately, or after the current write has finished. Runs the callback when this checkpoint is
  // durable. If a write has failed, returns its error and drops this state.
  absl::Status Submit(TrainingState state, CheckpointMeta meta, Callback callback);

  // Waits until no write is in progress.
  absl::Status Flush();

  // If several ranks write one checkpoint together (CheckpointMeta::shard), each writes its shard,
  // and rank 0 waits for the shards of the others, then lists them. FlushShard waits until this
  // rank's shard is durable. It returns an error without clearing it.
  absl::Status FlushShard();
  // Limits how long, from this call, the current write still waits for shards of other ranks. Call
  // when all shards are durable or a rank has failed.
  void ExpectShardsWithin(std::chrono::milliseconds limit);

  // Returns the total time that Submit waited, over all calls.
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
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // A job is queued or being written.
  bool shard_done_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::chrono::steady_clock::time_point> shards_due_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  double stalled_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace genesis
