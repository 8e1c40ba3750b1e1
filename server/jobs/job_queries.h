#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/auth/ownership.h"
#include "server/jobs/dispatcher.h"
#include "server/jobs/precision_control.h"
#include "server/ledger/event_hub.h"
#include "server/ledger/job_ledger.h"
#include "server/workers/workers.h"

namespace genesis {

// The jobs as callers see them. Reads snapshots, so that no reader waits for the writer. With
// auth.own_jobs_only, the jobs and checkpoints of other owners do not exist for callers below
// admin.
//
// Owner: JobManager. Threads: any.
class JobQueries {
 public:
  JobQueries(JobLedger* ledger, const Dispatcher* dispatcher, const PrecisionControl* precision,
             const TrainingStats* stats, const Workers* workers, Visibility visibility)
      : ledger_(*ledger),
        clock_(ledger->clock()),
        dispatcher_(*dispatcher),
        precision_(*precision),
        stats_(*stats),
        workers_(workers),
        visibility_(visibility) {}

  // Returns the job with its place in the queue. NOT_FOUND if there is none.
  absl::StatusOr<training::v1::Job> Get(const Caller& caller, const std::string& job_id) const;
  absl::StatusOr<std::vector<StoredJob>> List(const Caller& caller, const JobQuery& query) const;
  absl::StatusOr<training::v1::Checkpoint> GetCheckpoint(const Caller& caller,
                                                         const std::string& id) const;
  // Limits a filter by owner to what the caller sees. PERMISSION_DENIED if that is nothing.
  absl::Status LimitOwner(const Caller& caller, std::string& owner) const;
  // Checks a request about one job, or all if `job_id` is empty, for a caller that may not see all.
  // INVALID_ARGUMENT if it names no job; NOT_FOUND if the caller does not see that one.
  absl::Status CheckSees(const Caller& caller, const std::string& job_id) const;
  training::v1::StatsResponse Stats() const;
  // Returns statistics of all jobs or one. NOT_FOUND; INVALID_ARGUMENT for an invalid time window.
  absl::StatusOr<training::v1::StatsResponse> Stats(
      const Caller& caller, const training::v1::StatsRequest& request) const;
  // Returns one row for each job that is on a worker.
  std::vector<training::v1::HistoryRow> HistoryRows() const;
  // Sends the watcher the current job, then each change. NOT_FOUND if there is no such job.
  absl::Status Watch(const Caller& caller, const std::string& job_id,
                     const std::shared_ptr<JobWatcher>& watcher);
  void Unwatch(const std::string& job_id, const JobWatcher* watcher);

 private:
  using Job = training::v1::Job;
  struct QueuePlace {
    int position = 0;
    std::optional<absl::Time> start;
    std::string reason;  // Job.queue_reason
  };

  std::map<std::string, QueuePlace> ReadQueue() const;
  std::optional<absl::Duration> ExpectedDuration() const;
  absl::StatusOr<training::v1::StatsResponse> StatsOf(const Caller& caller,
                                                      const std::string& job_id,
                                                      absl::Duration length) const;
  static void PutPlace(const std::map<std::string, QueuePlace>& places, Job& job);

  JobLedger& ledger_;
  const Clock& clock_;
  const Dispatcher& dispatcher_;
  const PrecisionControl& precision_;
  const TrainingStats& stats_;
  const Workers* const workers_;
  const Visibility visibility_;
};

}  // namespace genesis
