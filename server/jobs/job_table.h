#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/job.pb.h"
#include "server/jobs/event_hub.h"
#include "server/store/job_store.h"

namespace genesis {

// The jobs and checkpoints in memory, in front of the store.
// Purpose: one writer changes, any thread reads. Changes gather until Commit, which writes them in
// one transaction, then counts them, shows them to readers and runs the announcements; when the
// store refuses, every change since the last commit is undone and nothing was counted or shown.
// Thread rule: the methods of the second block belong to the writer thread; those of the third may
// be called by any thread and return snapshots.
class JobTable {
 public:
  JobTable(JobStore* store, EventHub* hub) : store_(store), hub_(hub) {}

  // Fills the table from the store, before any other call.
  absl::Status Load();

  // Writer thread.
  const training::v1::Job* Find(const std::string& id) const;
  std::vector<std::string> Ids() const;
  std::vector<std::string> IdsIn(training::v1::JobState state) const;  // In order of acceptance.
  int CountIn(training::v1::JobState state) const;
  void Insert(training::v1::Job job);
  // The job, to be changed and stored.
  training::v1::Job* Edit(const std::string& id);
  // The job, to be changed and shown but not stored (progress between checkpoints).
  training::v1::Job* EditVolatile(const std::string& id);
  // A legal move of the table in job_state.h; ends the program on any other, which is a defect.
  void Move(const std::string& id, training::v1::JobState to, const std::string& reason);
  void PutCheckpoint(const training::v1::Checkpoint& checkpoint);
  void RemoveCheckpoint(const std::string& id);
  std::vector<training::v1::Checkpoint> CheckpointsOf(const std::string& job_id) const;
  // Losses in FP32 to compare jobs of a workload with (WorkloadKey); empty when there are none, or
  // when the store cannot be read, for they only help.
  training::v1::LossCurve BaselineOf(const std::string& workload) const;
  void PutBaseline(const std::string& workload, const std::string& job_id,
                   const training::v1::LossCurve& curve);
  // Runs after the commit and before readers see it, so that whoever sees a change finds it
  // counted; dropped when the commit fails.
  void Count(std::function<void()> counting);
  // Runs after the commit, when readers see it; dropped when the commit fails.
  void Announce(std::function<void()> announcement);
  absl::Status Commit();

  // Any thread.
  std::shared_ptr<const JobSnapshot> Snapshot(const std::string& id) const;
  std::vector<std::shared_ptr<const JobSnapshot>> Snapshots() const;   // In order of acceptance.
  std::vector<training::v1::Checkpoint> PublishedCheckpoints() const;  // Oldest first.

 private:
  struct Record {
    training::v1::Job job;
    int64_t ordinal = 0;
  };
  struct BaselineRecord {
    std::string workload, job_id;
    training::v1::LossCurve curve;
  };
  struct MoveRecord {
    std::string job_id;
    training::v1::JobState from, to;
    std::string reason;
  };

  absl::Status Write();
  void Publish();
  void Undo();
  training::v1::Job* Touch(const std::string& id);

  JobStore* const store_;
  EventHub* const hub_;

  // Writer thread only.
  std::map<std::string, Record> jobs_;
  std::vector<training::v1::Checkpoint> checkpoints_;
  int64_t next_ordinal_ = 1;
  int64_t version_ = 0;
  // Changes since the last commit.
  std::map<std::string, std::optional<Record>> originals_;  // nullopt: inserted.
  std::optional<std::vector<training::v1::Checkpoint>> original_checkpoints_;
  std::set<std::string> to_store_;
  std::vector<training::v1::Checkpoint> put_checkpoints_;
  std::vector<std::string> removed_checkpoints_;
  std::vector<MoveRecord> moves_;
  std::vector<BaselineRecord> put_baselines_;
  std::vector<std::function<void()>> countings_;
  std::vector<std::function<void()>> announcements_;

  mutable absl::Mutex mutex_;
  std::map<int64_t, std::shared_ptr<const JobSnapshot>> published_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> ordinals_ ABSL_GUARDED_BY(mutex_);
  std::vector<training::v1::Checkpoint> published_checkpoints_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
