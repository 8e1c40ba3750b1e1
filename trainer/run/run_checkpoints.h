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
#include "trainer/runtime/run_observer.h"

namespace genesis {

// The checkpoints of one run: hands states to the background writer, and reports each durable one
// to the observer. With several ranks the first writes and the others note what it wrote, or all
// write a share of each (checkpoint.sharded).
//
// Owner: the run. Threads: one; the observer is called on the writer's. Failure: RunFailure; a
// write that fails in the background throws at the next call.
class RunCheckpoints {
 public:
  RunCheckpoints(const training::v1::StartJob& start, RunObserver& observer,
                 RankGroup* ranks = nullptr);

  // Makes the folder. Called by all ranks in the same order, as Save, Repeat and Flush.
  void Prepare();
  // The first state of start.resume_from that is whole and that `take` accepts; nullopt when there
  // is none to resume from. Fails when there are some and none can be used.
  //
  // A worker that was killed after it had removed an old checkpoint, and before its report of the
  // new one, leaves a daemon that knows the old one alone. Then those of the folder are tried too,
  // and the next report names what is gone.
  std::optional<TrainingState> Resume(
      const std::function<absl::Status(const TrainingState&)>& take);

  // Begins to write a state that was just taken, and whose tensors may still be on their way;
  // `held_out_loss` where its step was evaluated, `since` when training stopped for it.
  void Save(const TrainingState& state, std::optional<double> held_out_loss,
            std::chrono::steady_clock::time_point since);
  // Reports the checkpoint of this step to the observer again; false if there is none.
  bool Repeat(int64_t step);
  // Waits until everything is durable; of shards, until those of all ranks are.
  void Flush();
  // Step of the newest checkpoint that this run wrote or came from; -1 for none.
  int64_t saved_step() const { return saved_step_; }
  // After the run went back to an earlier step.
  void Forget() { saved_step_ = -1; }

 private:
  void FlushShards();
  // Fails on all ranks where one of them did, and leaves no shard of the checkpoint.
  void RequireShards(const absl::Status& own);
  void RequireSharedFolder();

  const training::v1::StartJob& start_;
  RunObserver& observer_;
  RankGroup* const ranks_;  // Null where this process trains alone.
  const bool writes_;       // Whole checkpoints, or the list of the shards.
  const bool sharded_;
  std::string token_;      // Shared by the shards of this attempt.
  int64_t begun_ = 0;      // Sharded checkpoints.
  ShardPlace place_;       // In the newest of them.
  int64_t own_step_ = -1;  // Step of the newest one begun here.
  CheckpointFolder folder_;
  int64_t saved_step_ = -1;
  std::vector<std::string> missing_;  // Ids that the daemon knows and the folder lacks.
  std::optional<training::v1::CheckpointWritten> written_;  // The writer's thread's until a Flush.
  CheckpointWriter writer_;
};

}  // namespace genesis
