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
#include "server/store/event_reads.h"
#include "server/store/reader_pool.h"
#include "server/store/store_reads.h"
#include "server/store/webhook_rows.h"

namespace genesis {

// The jobs as readers see them. Durable data is read from the store on separate
// connections; the progress of unfinished jobs, which is only in memory, is
// merged into it. So the daemon's memory does not grow with the number of
// finished jobs. Owner: JobTable, which publishes after each commit. Threads:
// any. Failure: the store's status.
class JobView {
 public:
  using Counts = std::map<training::v1::JobState, int64_t>;

  explicit JobView(ReaderPool* readers) : readers_(readers) {}

  struct Shown {
    std::shared_ptr<const JobSnapshot> snapshot;
    int64_t ordinal = 0;  // Order of acceptance.
  };

  // Returns the job; nullptr if there is none.
  absl::StatusOr<std::shared_ptr<const JobSnapshot>> Snapshot(const std::string& id) const;
  // Returns matching jobs, without their positions in the queue.
  absl::StatusOr<std::vector<StoredJob>> List(const JobQuery& query) const;
  // Returns all unfinished jobs and some finished ones.
  std::vector<Shown> InMemory() const;
  // Returns the number of jobs by state. States without jobs may be missing.
  Counts CountsByState() const;

  // Same as ReadEvents. Unless `skip_dropped`, returns OUT_OF_RANGE if events after `sequence` were
  // dropped because their job had too many.
  absl::StatusOr<EventPage> EventsAfter(const EventQuery& query, int64_t sequence, int64_t limit,
                                        bool skip_dropped) const;
  // Same as ReadLogLines.
  absl::StatusOr<std::vector<training::v1::JobEvent>> LogLines(const std::string& job_id) const;
  // Returns the sequence number of the newest event of any job; 0 if there is none.
  int64_t LastSequence() const;

  // Same as ReadCheckpoints.
  absl::StatusOr<std::vector<StoredCheckpoint>> Checkpoints(const std::string& job_id,
                                                            int64_t before, int64_t limit) const;
  // Returns NOT_FOUND if there is no such checkpoint.
  absl::StatusOr<training::v1::Checkpoint> GetCheckpoint(const std::string& id) const;

  // See ReadWebhookDeliveries in server/store/webhook_rows.h.
  absl::StatusOr<std::vector<StoredDelivery>> WebhookDeliveries(int64_t before,
                                                                int64_t limit) const;

  // The changes of a commit, which the writer thread publishes.
  struct Change {
    std::vector<Shown> shown;
    std::vector<std::string> dropped;  // IDs of jobs no longer kept in memory.
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
