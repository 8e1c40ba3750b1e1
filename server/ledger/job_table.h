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
#include "server/store/job_store.h"

namespace genesis {

// The jobs as their one writer changes them, in front of the store.
// Purpose: changes gather until Commit, which writes them in one transaction, then counts them,
// shows them to readers (view) and runs the announcements; when the store refuses, every change
// since the last commit is undone and nothing was counted or shown. In memory are the jobs that
// have not ended and the 64 that ended or were asked for last; the rest is read from the store.
// Owner: JobManager. Threads: the writer's; view() from any.
// Failure: Commit's status; a read that fails is logged and answers as if there were nothing.
class JobTable {
 public:
  JobTable(JobStore* store, EventHub* hub, const Clock& clock = Clock::System())
      : store_(store), hub_(hub), clock_(clock), view_(&store->readers()) {}

  // Call before any other method. `on_forgotten` receives the last state of each removed job.
  void SetRetention(RetentionSettings retention) { retention_ = retention; }
  void OnForgotten(std::function<void(training::v1::JobState)> on_forgotten) {
    on_forgotten_ = std::move(on_forgotten);
  }
  // Fills the table from the store with what has not ended.
  absl::Status Load();

  // A job, ended or not; the pointer is good until the next Commit.
  const training::v1::Job* Find(const std::string& id) const;
  const training::v1::Job* FindByRequestId(const std::string& request_id) const;
  // The jobs that have not ended.
  std::vector<std::string> Ids() const;
  std::vector<std::string> IdsIn(training::v1::JobState state) const;  // In order of acceptance.
  int CountIn(training::v1::JobState state) const;
  void Insert(training::v1::Job job);
  // The job, to be changed and stored.
  training::v1::Job* Edit(const std::string& id);
  // The job, to be changed and shown but not stored (progress between checkpoints).
  training::v1::Job* EditVolatile(const std::string& id);
  // A legal move of the table in job_state.h, with its event; ends the program on any other, which
  // is a defect.
  void Move(const std::string& id, training::v1::JobState to, const std::string& reason);
  // Forgets the job with its events and, when asked to, the records of its checkpoints.
  void Remove(const std::string& id, bool with_checkpoints);

  // Records what happened to the job, stored with the changes it came with; its time is now if
  // unset.
  void AddEvent(const std::string& job_id, training::v1::JobEvent event);
  // The same for events that need not be durable at once, such as log lines: they go with the next
  // change that is stored, or after a second, so that none costs an fsync of its own. A daemon that
  // is killed loses at most that second of them.
  void AddEventLazily(const std::string& job_id, training::v1::JobEvent event);

  void PutCheckpoint(const training::v1::Checkpoint& checkpoint);
  void RemoveCheckpoint(const std::string& id);
  std::vector<training::v1::Checkpoint> CheckpointsOf(const std::string& job_id) const;
  std::optional<training::v1::Checkpoint> FindCheckpoint(const std::string& id) const;

  // Losses in FP32 to compare jobs of a workload with (WorkloadKey); empty when there are none.
  training::v1::LossCurve BaselineOf(const std::string& workload) const;
  void PutBaseline(const std::string& workload, const std::string& job_id,
                   const training::v1::LossCurve& curve);
  // Values to remember, each by a name of its own.
  std::optional<std::string> Metadata(const std::string& key) const;
  void PutMetadata(const std::string& key, std::string value);

  // Runs after the commit and before readers see it, so that every visible change is already
  // counted. Dropped if the commit fails.
  void Count(std::function<void()> counting);
  // Runs after the commit, when readers see it; dropped when the commit fails.
  void Announce(std::function<void()> announcement);
  absl::Status Commit();
  // Takes back what was changed since the last commit, and drops what waits for the next.
  void Discard();
  // Commit, with the lazy events.
  absl::Status Flush();
  // When Commit is due even without a change: lazy events, retention.
  absl::Time NextDue() const;

  // Any thread.
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
  struct PendingEvent {
    std::string job_id;
    std::shared_ptr<training::v1::JobEvent> event;
  };
  // Changes since the last commit that was written; `originals` since the last one at all.
  struct Pending {
    std::map<std::string, std::optional<Record>> originals;  // nullopt: inserted.
    std::set<std::string> to_store;
    std::map<std::string, bool> removed;  // Jobs; true: with their checkpoints.
    std::vector<training::v1::Checkpoint> put_checkpoints;
    std::set<std::string> removed_checkpoints;
    std::vector<BaselineRecord> baselines;
    std::map<std::string, std::string> facts;
    std::vector<std::function<void()>> countings;
    std::vector<std::function<void()>> announcements;
    bool must_write = false;
  };

  Record* Fetch(const std::string& id) const;
  Record* Keep(StoredJob stored) const;
  training::v1::Job* Touch(const std::string& id);
  void QueueEvent(const std::string& job_id, training::v1::JobEvent event);
  bool IsOverLimit() const;
  bool MustWrite(absl::Time now) const;
  absl::Status Write(absl::Time now);
  absl::Status WriteChanges();
  absl::Status WriteEvents();
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

  // Find fills these from the store.
  mutable std::map<std::string, Record> jobs_;
  mutable std::deque<std::string> ended_;  // Ended jobs in jobs_, the oldest first.
  int64_t next_ordinal_ = 1;
  int64_t version_ = 0;
  int64_t last_sequence_ = 0;
  JobView::Counts counts_;
  Pending pending_;
  // Lazy ones may be left over from earlier commits: the first `settled_events_`.
  std::vector<PendingEvent> events_;
  size_t settled_events_ = 0;
  std::vector<JobStore::Forgotten> forgotten_;
  absl::Time lazy_due_ = absl::InfiniteFuture();
  absl::Time next_age_check_ = absl::InfinitePast();
  absl::Time retry_ = absl::InfinitePast();
};

}  // namespace genesis
