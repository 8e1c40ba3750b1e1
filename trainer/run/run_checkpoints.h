#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/training_state.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_control.h"
#include "trainer/runtime/run_observer.h"

namespace genesis {

// The checkpoints of one run. Passes states to the background writer, and reports each durable
// checkpoint to the observer. With several ranks, either rank 0 writes and the others note what it
// wrote, or every rank writes a shard (checkpoint.sharded).
//
// Owner: the run. Threads: one; the observer is called on the writer's thread. Failure: RunFailure;
// a write that failed in the background throws from the next call.
class RunCheckpoints {
 public:
  RunCheckpoints(const training::v1::StartJob& start, const RunControl& control,
                 RunObserver& observer, RankGroup& ranks);

  // Creates the folder. All ranks call Prepare, Save, Repeat and Flush in the same order.
  void Prepare();
  // Returns the first state of start.resume_from that is intact and that `take` accepts. If
  // start.resume_from is empty, returns nullopt, and `take` gets the state of start.continue_from
  // if there is one. Throws RunFailure if a named file, or all of several, cannot be used.
  //
  // If a worker was killed after it removed an old checkpoint and before it reported the new one,
  // the daemon knows only the old one. Then all checkpoints in the folder are tried, and the next
  // report lists the missing ones as removed.
  std::optional<TrainingState> Resume(
      const std::function<absl::Status(const TrainingState&)>& take);

  // Begins to write a state whose tensors may still be in flight. `held_out_loss` is set if its
  // step was evaluated; `since` is when training paused for the checkpoint.
  void Save(const TrainingState& state, std::optional<double> held_out_loss,
            std::chrono::steady_clock::time_point since);
  // Reports the checkpoint of this step to the observer again. Returns false if there is none.
  bool Repeat(int64_t step);
  // Waits until the checkpoint is durable; if sharded, until all ranks' shards are.
  void Flush();
  // Step of the newest checkpoint that this run wrote or resumed from; -1 for none.
  int64_t saved_step() const { return saved_step_; }
  // Call after the run went back to an earlier step.
  void Forget() { saved_step_ = -1; }

 private:
  // Passes the state of start.continue_from to `take` as the initial state of a job: at step 0, at
  // the start of the data, and with nothing evaluated.
  void ContinueFrom(const std::function<absl::Status(const TrainingState&)>& take);
  void FlushShards();
  // Throws RunFailure on all ranks if any rank failed, and removes this rank's shard.
  void RequireShards(const absl::Status& own);
  void RequireSharedFolder();

  const training::v1::StartJob& start_;
  RunObserver& observer_;
  RankGroup& ranks_;
  const bool writes_;  // Rank 0: writes whole checkpoints, or the list of the shards.
  const bool sharded_;
  std::string token_;      // Prefix of the shard tokens of this attempt.
  int64_t begun_ = 0;      // Number of sharded checkpoints begun.
  ShardPlace place_;       // This rank's place in the newest sharded checkpoint.
  int64_t own_step_ = -1;  // Step of the newest checkpoint that this rank began.
  CheckpointFolder folder_;
  int64_t saved_step_ = -1;
  std::vector<std::string> missing_;  // IDs that the daemon knows but the folder lacks.
  std::optional<training::v1::CheckpointWritten> written_;  // Owned by the writer until a Flush.
  CheckpointWriter writer_;
};

}  // namespace genesis
