#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/data/followed_replay.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_control.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/step/batch_source.h"

namespace genesis {

// Opens the replay buffer of a job with dataset.replay.follow. Throws RunFailure if it cannot be
// read, or if a new job requires a min_size above its capacity.
std::unique_ptr<FollowedReplay> OpenFollowed(const training::v1::StartJob& start);

// The part of a run that follows a replay buffer: it looks for new transitions, adds them to the
// examples, and makes the run wait while there are too few. Rank 0 looks and decides, and all ranks
// take the same transitions before the same step.
//
// Owner: the run; the arguments outlive it. Threads: one. Failure: RunFailure, FAILURE_CAUSE_DATA
// if data cannot be read or is missing, FAILURE_CAUSE_WORKER_EXIT if ranks see other transitions.
class Following {
 public:
  Following(const training::v1::JobSpec& spec, FollowedReplay& data, RunControl& control,
            RunObserver& observer, RankGroup& ranks);

  // Waits until there is enough data for the first step, then fixes the statistics. Returns false
  // if a stop is requested. Fails after dataset.replay.idle_seconds without a new transition.
  bool AwaitEnough();

  // Continues to count from the transitions that earlier attempts had seen.
  void Resume(const training::v1::Progress& progress);

  // Call before each step of `examples` examples. Returns true if the step may run. Otherwise waits
  // briefly, so that the caller can serve its requests and call again. Calls `settle` before the
  // examples change or a wait begins, so that no unread step depends on the old examples. `news` is
  // the NewsDue() of rank 0, on which the ranks agreed with the last step.
  bool MayStep(BatchSource& source, int64_t examples, bool news,
               const std::function<void()>& settle);
  // Returns whether MayStep has to exchange news after the next step. False on ranks other than 0.
  bool NewsDue(const BatchSource& source, int64_t examples);

  // The range of all transitions that the job has seen, including evicted ones.
  const ReplayRange& seen() const { return seen_; }
  // Returns why the job should end now, or "".
  const std::string& end_reason() const { return end_reason_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // The message that rank 0 sends to the other ranks.
  struct News {
    ReplayRange range;
    bool stop = false;
    std::string wait;  // Why the ranks must wait; "" to continue.
    std::string end;   // Value of end_reason().
  };

  ReplayRange Look();
  void LookAgain(const ReplayRange& range);
  News FromFirst(const News& own);
  void Take(const ReplayRange& range);
  void RequireSame();
  std::string Lacking() const;
  std::string Limited(const BatchSource& source, int64_t examples) const;
  std::string IdleReason() const;
  void Wait(const std::string& reason);
  void EndWait();

  const training::v1::ReplaySpec& spec_;
  const int64_t batch_;  // Number of examples in a batch of all ranks.
  FollowedReplay& data_;
  RunControl& control_;
  RunObserver& observer_;
  RankGroup& ranks_;
  ReplayRange seen_;
  ReplayRange found_;  // Transitions in the folder at the last Look().
  Time looked_;
  Time grew_;  // Time at which a new transition was last found.
  bool talked_ = false;
  bool waiting_ = false;
  Time wait_began_;
  Time wait_reported_;
  bool logged_ = false;
  std::string end_reason_;
};

}  // namespace genesis
