#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "server/ledger/event_hub.h"
#include "server/ledger/job_view.h"
#include "server/ledger/pending_events.h"
#include "server/store/job_store.h"

namespace genesis {

// The jobs as the writer thread changes them, in front of the store. Changes are collected until
// Commit, which writes them in one transaction, counts them, publishes them to readers (view) and
// runs the announcements. If the store refuses, all changes since the last commit are undone, and
// nothing is counted or published. Unfinished jobs are kept in memory, with the 64 finished ones
// that were written or read last; the rest is read from the store. Owner: JobManager. Threads: the
// writer's; any for view(). Failure: Commit returns the store's status. A failed read returns
// an empty result and is logged, except by BaselineOf.
class JobTable {
 public:
  JobTable(JobStore* store, EventHub* hub, const Clock& clock = Clock::System())
      : store_(store), hub_(hub), clock_(clock), view_(&store->readers()) {}

  // Must be called before other methods. `on_forgotten` gets the last state of each removed job.
  void SetRetention(RetentionSettings retention) { retention_ = retention; }
  void OnForgotten(std::function<void(training::v1::JobState)> on_forgotten) {
    on_forgotten_ = std::move(on_forgotten);
  }
  // Loads the unfinished jobs from the store.
  absl::Status Load();

  // Returns a job, finished or not. The pointer is valid until the next Commit.
  const training::v1::Job* Find(const std::string& id) const;
  const training::v1::Job* FindByRequestId(const std::string& request_id) const;
  // Returns the IDs of the unfinished jobs.
  std::vector<std::string> Ids() const;
  std::vector<std::string> IdsIn(training::v1::JobState state) const;  // In order of acceptance.
  int CountIn(training::v1::JobState state) const;
  void Insert(training::v1::Job job);
  // Returns the job for a change that is stored.
  training::v1::Job* Edit(const std::string& id);
  // Returns the job for a change that is published but not stored (progress between checkpoints).
  training::v1::Job* EditVolatile(const std::string& id);
  // Makes a legal move of job_state.h and records it as an event. Any other move is a bug and
  // aborts the program.
  void Move(const std::string& id, training::v1::JobState to, const std::string& reason);
  // Removes the job with its events and, if requested, the records of its checkpoints.
  void Remove(const std::string& id, bool with_checkpoints);

  // Records an event of the job, stored with the other pending changes. Its time is now if unset.
  void AddEvent(const std::string& job_id, training::v1::JobEvent event);
  // Returns the kept events of these kinds, oldest first.
  std::vector<training::v1::JobEvent> EventsOf(const std::string& job_id,
                                               const std::vector<std::string>& kinds) const;
  // Records a line that a worker of the job logged. Lines are written with the next stored change
  // or after a second, so that none costs an fsync of its own. A daemon that is killed loses at
  // most the lines of that second.
  void AddLogLine(const std::string& job_id, const std::string& line);

  void PutCheckpoint(const training::v1::Checkpoint& checkpoint);
  // Changes the record of a checkpoint, which keeps its place in the order.
  void UpdateCheckpoint(const training::v1::Checkpoint& checkpoint);
  void RemoveCheckpoint(const std::string& id);
  std::vector<training::v1::Checkpoint> CheckpointsOf(const std::string& job_id) const;
  std::optional<training::v1::Checkpoint> FindCheckpoint(const std::string& id) const;

  // Returns the FP32 losses of the newest finished job of the workload (WorkloadKey); may be empty.
  training::v1::LossCurve BaselineOf(const std::string& workload) const;
  void PutBaseline(const std::string& workload, const std::string& job_id,
                   const training::v1::LossCurve& curve);
  // Reads and writes named values that are kept across restarts.
  std::optional<std::string> Metadata(const std::string& key) const;
  void PutMetadata(const std::string& key, std::string value);

  // Runs `write` in the next commit, for records other than jobs. An error refuses the commit.
  void AddWrite(std::function<absl::Status(Database&)> write);

  // Runs `counting` after the commit and before the changes are published. JobView::List may read
  // a change from the store before it is counted. Dropped if the commit fails.
  void Count(std::function<void()> counting);
  // Runs `announcement` after the commit has been published. Dropped if the commit fails.
  void Announce(std::function<void()> announcement);
  absl::Status Commit();
  // Undoes the changes since the last commit and drops pending functions and events.
  void Discard();
  // Commits, including the log lines.
  absl::Status Flush();
  // Returns when Commit is due even without a change, because of log lines or retention.
  absl::Time NextDue() const;

  // Any thread may call it.
  const JobView& view() const { return view_; }

 private:
  struct Record {
    training::v1::Job job;
    int64_t ordinal = 0;
  };
  struct BaselineRecord {
    std::string workload, job_id;
    training::v1::LossCurve curve;
  };
  // Changes since the last commit.
  struct Pending {
    std::map<std::string, std::optional<Record>> originals;  // Unset if inserted.
    std::set<std::string> to_store;
    std::map<std::string, bool> removed;  // Keyed by job; true if with checkpoints.
    std::vector<training::v1::Checkpoint> put_checkpoints;
    std::map<std::string, training::v1::Checkpoint> updated_checkpoints;  // Keyed by ID.
    std::set<std::string> removed_checkpoints;
    std::vector<BaselineRecord> baselines;
    std::map<std::string, std::string> facts;
    std::vector<std::function<absl::Status(Database&)>> writes;
    std::vector<std::function<void()>> countings;
    std::vector<std::function<void()>> announcements;
    bool must_write = false;
  };

  Record* Fetch(const std::string& id) const;
  Record* Keep(StoredJob stored) const;
  training::v1::Job* Touch(const std::string& id);
  training::v1::JobEvent Complete(const std::string& job_id, training::v1::JobEvent event) const;
  void QueueDeletion(const JobStore::Forgotten& job, bool by_retention);
  bool IsOverLimit() const;
  bool MustWrite(absl::Time now) const;
  absl::Status Write(absl::Time now);
  absl::Status WriteChanges();
  absl::Status Forget(absl::Time now);
  int64_t EndedAfterCommit() const;
  void Settle(bool written);
  JobView::Change CollectChange();
  void DropOldEnded(std::vector<std::string>* dropped);
  void Undo();

  JobStore* const store_;
  EventHub* const hub_;
  const Clock& clock_;
  JobView view_;
  RetentionSettings retention_;
  std::function<void(training::v1::JobState)> on_forgotten_ = [](training::v1::JobState) {};

  // `jobs_` and `ended_` are also filled by Find, from the store.
  mutable std::map<std::string, Record> jobs_;
  mutable std::deque<std::string> ended_;  // Finished jobs in jobs_, oldest first.
  int64_t next_ordinal_ = 1;
  int64_t version_ = 0;
  int64_t last_sequence_ = 0;
  JobView::Counts counts_;
  Pending pending_;
  PendingEvents events_;
  std::vector<JobStore::Forgotten> forgotten_;
  absl::Time next_age_check_ = absl::InfinitePast();
  absl::Time retry_ = absl::InfinitePast();
};

}  // namespace genesis
