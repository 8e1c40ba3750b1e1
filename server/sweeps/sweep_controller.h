#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/auth/caller.h"
#include "server/auth/ownership.h"
#include "server/base/callback.h"
#include "server/jobs/job_manager.h"
#include "server/store/reader_pool.h"
#include "server/store/sweep_rows.h"

namespace genesis {

// The controller of the sweeps. It submits their trials as jobs, follows the durable events of
// these jobs, and stops the losers. Each decision follows from the sweep's record and the events
// after its cursor, and may be carried out twice, so a daemon that was killed continues where it
// was.
//
// Owner: the daemon, which stops it before the JobManager. Threads: one of its own, the only one
// that changes sweeps; any thread may call Create, Cancel, Get and List. Failure: a request gets
// the store's status; what the store refuses is tried again every second.
class SweepController {
 public:
  SweepController(ReaderPool* readers, JobManager* jobs, Visibility visibility)
      : readers_(readers), jobs_(jobs), visibility_(visibility) {}
  ~SweepController() { Stop(); }

  // Loads the sweeps that have not ended, and starts the thread. Call after JobManager::Start.
  absl::Status Start();
  // Ends the thread; requests that wait get UNAVAILABLE. Idempotent.
  void Stop();

  void Create(const Caller& caller, const training::v1::CreateSweepRequest& request,
              const Callback<training::v1::Sweep>& callback);
  void Cancel(const Caller& caller, const std::string& sweep_id,
              const Callback<training::v1::Sweep>& callback);
  // Returns the sweep. NOT_FOUND if the caller sees no such sweep.
  absl::StatusOr<training::v1::Sweep> Get(const Caller& caller, const std::string& sweep_id) const;
  // Returns at most `limit` sweeps of those that the caller sees, without their trials, newest
  // first. `before` is the ordinal at which to continue; 0 starts with the newest.
  absl::StatusOr<std::vector<StoredSweep>> List(const Caller& caller, int64_t before,
                                                int64_t limit) const;

 private:
  using Sweep = training::v1::Sweep;
  using Trial = training::v1::Trial;

  // A sweep that has not ended.
  struct Open {
    StoredSweep stored;
    bool must_write = false;
    bool submitting = false;   // A Train call has not returned.
    std::set<int> changed;     // Trials to store.
    std::set<int> cancelling;  // Trials whose job this process has cancelled.
    absl::Time next_submission = absl::InfinitePast();
  };

  // Runs the task on the thread. After Stop, calls `refused` instead, if it is set.
  void Post(std::function<void()> task,
            const std::function<void(const absl::Status&)>& refused = nullptr);
  void Loop();
  void Add(StoredSweep stored);
  absl::StatusOr<Sweep> CreateNow(const Sweep& sweep);
  absl::StatusOr<Sweep> CancelNow(const Caller& caller, const std::string& sweep_id);
  absl::Status Round();
  absl::Status FollowEvents();
  void NoteEvent(const training::v1::JobEvent& event);
  void NoteLostJobs();
  void SubmitNext(Open& open);
  void OnSubmitted(const std::string& sweep_id, int number,
                   const absl::StatusOr<training::v1::Job>& job);
  void StopTrials(Open& open);
  static void Summarize(Open& open);
  absl::Status WriteChanges();
  // Runs `write` in a commit of the job store and waits for it.
  absl::Status Write(std::function<absl::Status(Database&)> write);
  absl::StatusOr<std::optional<StoredSweep>> Read(const std::string& sweep_id) const;

  ReaderPool* const readers_;
  JobManager* const jobs_;
  const Visibility visibility_;
  std::thread thread_;

  absl::Mutex mutex_;
  SteadyCondition changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Used by the thread only.
  std::map<std::string, Open> open_;                                 // Keyed by sweep ID.
  std::map<std::string, std::pair<std::string, int>> trial_of_job_;  // Sweep ID and number.
  int64_t cursor_ = 0;  // All events up to this one were examined.
  bool caught_up_ = false;
  absl::Time next_round_ = absl::InfinitePast();
  absl::Status told_;  // Last status of Round that was logged.
};

}  // namespace genesis
