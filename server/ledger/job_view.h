#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "server/ledger/event_hub.h"
#include "server/store/reader_pool.h"
#include "server/store/store_reads.h"

namespace genesis {

// Jobs as readers see them.
// Purpose: what is durable comes from the store, on connections of the reader's own; what is only
// in memory, the progress of jobs that have not ended, is laid over it. So the daemon's memory does
// not grow with the jobs that have ended. Owner: JobTable, which publishes after each commit.
// Threads: any. Failure: the store's status.
class JobView {
 public:
  using Counts = std::map<training::v1::JobState, int64_t>;

  explicit JobView(ReaderPool* readers) : readers_(readers) {}

  struct Shown {
    std::shared_ptr<const JobSnapshot> snapshot;
    int64_t ordinal = 0;  // Order of acceptance.
  };

  // nullptr when there is no such job.
  absl::StatusOr<std::shared_ptr<const JobSnapshot>> Snapshot(const std::string& id) const;
  // Their places in the queue are the scheduler's to fill in.
  absl::StatusOr<std::vector<StoredJob>> List(const JobQuery& query) const;
  // Every job that has not ended, and a few that have.
  std::vector<Shown> InMemory() const;
  // States without a job may be missing.
  Counts CountsByState() const;

  absl::StatusOr<std::vector<training::v1::JobEvent>> EventsAfter(const std::string& job_id,
                                                                  int64_t sequence,
                                                                  int64_t limit) const;
  // The sequence number of the newest event of any job; 0 before the first.
  int64_t LastSequence() const;

  // As ReadCheckpoints.
  absl::StatusOr<std::vector<StoredCheckpoint>> Checkpoints(const std::string& job_id,
                                                            int64_t before, int64_t limit) const;
  // NOT_FOUND when there is no such checkpoint.
  absl::StatusOr<training::v1::Checkpoint> GetCheckpoint(const std::string& id) const;

  // The writer's side: what a commit changed.
  struct Change {
    std::vector<Shown> shown;
    std::vector<std::string> dropped;  // Ids that are no longer kept in memory.
    Counts counts;
    int64_t last_sequence;
  };
  void Publish(Change change);

 private:
  std::shared_ptr<const JobSnapshot> FindInMemory(const std::string& id) const;

  ReaderPool* const readers_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Shown> shown_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace genesis
