#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// A job that waits for a slot.
struct WaitingJob {
  std::string id;
  int priority = 0;
  std::string owner;
  int64_t ordinal = 0;  // Order of acceptance.
  int slots = 1;        // Slots that it needs.
};

// A job that holds a slot.
struct HoldingJob {
  std::string id;
  int priority = 0;
  std::string owner;
  absl::Time start;
  std::optional<absl::Duration> remaining;  // Unset if unknown.
  int slots = 1;                            // Slots that it holds.
};

// Returns a running job as the scheduler sees it. `start` is the start of the current attempt.
HoldingJob Holding(const training::v1::Job& job, absl::Time start);

// Recent slot usage of owners: seconds on workers, halved every hour, so that yesterday's usage no
// longer counts.
// Owner: JobManager. Threads: any.
class OwnerUsage {
 public:
  void Add(const std::string& owner, double seconds, absl::Time now);
  double Of(const std::string& owner, absl::Time now) const;

 private:
  struct Use {
    double seconds = 0;
    absl::Time at;
  };
  double OfLocked(const std::string& owner, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, Use> uses_ ABSL_GUARDED_BY(mutex_);
};

// Returns job IDs in the order in which they get slots: higher priority first; among equals, the
// owner who holds the fewest slots, including slots assigned earlier in this order; then the
// owner with the smallest recent usage; then the oldest job. (Max-min fairness over slots, as in
// Hadoop's fair scheduler.)
std::vector<std::string> QueueOrder(const std::vector<WaitingJob>& waiting,
                                    const std::vector<HoldingJob>& holding, const OwnerUsage& usage,
                                    absl::Time now);

// Returns the jobs to stop so that a job of `priority` gets `slots` more slots: the lowest priority
// first, then the latest start, because it loses the least work. Empty if all of them hold too few
// slots, so that no job is stopped in vain.
std::vector<std::string> ChooseVictims(int priority, int slots, std::vector<HoldingJob> holding);

// Estimates the start times of waiting jobs, given by the slots they need: slots become free as the
// jobs in them end, and each job takes `expected`. Stops before the first job that needs more slots
// than are known to become free. Empty if the remaining time of a holding job is unknown.
std::vector<absl::Time> EstimateStarts(const std::vector<int>& waiting, int slots,
                                       const std::vector<HoldingJob>& holding,
                                       std::optional<absl::Duration> expected, absl::Time now);

// Returns the delay before restart number `restarts` since the newest checkpoint: 0 before the
// first, then 1 s, 2 s, 4 s, up to kMaxRestartBackoff.
inline constexpr absl::Duration kMaxRestartBackoff = absl::Seconds(60);
absl::Duration RestartBackoff(int restarts);

}  // namespace genesis
