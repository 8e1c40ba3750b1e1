#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/write_checkpoint.h"

namespace genesis {

// A checkpoint that is durable and was read back.
struct WrittenCheckpoint {
  std::string id;
  std::string path;
  int64_t step = 0;
  int64_t size = 0;
  double seconds = 0;                    // Of writing, in the background.
  std::vector<std::string> removed_ids;  // By retention.
};

// Writes checkpoints while training goes on, one at a time: writes, reads back, syncs, renames,
// then removes what retention no longer keeps.
//
// Owner: the run; what the callback uses outlives it. The destructor waits for the write under way.
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
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_; }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return job_.has_value() || ending_; }
  absl::Status TakeError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CheckpointFolder folder_;
  const Retention retention_;
  mutable absl::Mutex mutex_;
  std::optional<Job> job_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // A job waits or is being written.
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  double stalled_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace genesis
