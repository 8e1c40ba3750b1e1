#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/auth/caller.h"
#include "server/base/callback.h"
#include "server/base/io_threads.h"
#include "server/jobs/dispatcher.h"
#include "server/jobs/job_manager_options.h"
#include "server/jobs/submission.h"
#include "server/ledger/job_ledger.h"
#include "server/workers/workers.h"

namespace genesis {

// The admission of jobs to the queue. It checks names, specification and files, and reports all
// errors of the first of them that has any. A repeated request returns the job that it created.
//
// Owner: JobManager. Threads: any thread may call Train, SetQueueLimit and CheckRoom, only the
// writer thread the rest. Files are checked on other threads, because a file system may hang.
class Admission {
 public:
  Admission(const JobManagerOptions& options, JobLedger* ledger, Dispatcher* dispatcher,
            Workers* workers, Metrics* metrics)
      : options_(options),
        table_(ledger->table()),
        writer_(ledger->writer()),
        clock_(ledger->clock()),
        dispatcher_(*dispatcher),
        workers_(workers),
        metrics_(metrics),
        queue_limit_(options.queue.max_jobs) {}

  void Train(const training::v1::TrainRequest& request, const Caller& caller,
             const Callback<training::v1::Job>& callback);
  // Sets the maximum number of QUEUED jobs.
  void SetQueueLimit(int jobs) { queue_limit_ = jobs; }
  // Returns RESOURCE_EXHAUSTED if the queue, or the owner's part of it, is full.
  absl::Status CheckQueue(const std::string& owner) const;
  // Returns RESOURCE_EXHAUSTED if the owner may not store `more` bytes of `what`. Any thread.
  absl::Status CheckRoom(const std::string& owner, int64_t more, const std::string& what) const;

 private:
  using Job = training::v1::Job;

  std::vector<FieldError> MissingPaths(const Caller& caller,
                                       const training::v1::JobSpec& spec) const;

  absl::StatusOr<Job> Accept(const Submission& submission);
  // Returns the owner of the job: the one that the request names, otherwise the caller.
  static std::string OwnerOf(const Submission& submission);
  // Returns PERMISSION_DENIED if the caller may not submit for that owner.
  static absl::Status CheckOwnerOf(const Submission& submission);
  absl::StatusOr<Job> NewJob(const Submission& submission) const;
  absl::Status CheckSpec(const Submission& submission) const;
  // Returns NOT_FOUND if the job begins with a checkpoint that does not exist or that the caller
  // may not see.
  absl::Status CheckBeginning(const Submission& submission) const;
  static absl::Status CheckNames(const training::v1::TrainRequest& request);
  // Returns the job that this request created before, found by job or request ID; null for none.
  const Job* FindSame(const training::v1::TrainRequest& request) const;

  const JobManagerOptions& options_;
  JobTable& table_;
  Writer& writer_;
  const Clock& clock_;
  Dispatcher& dispatcher_;
  Workers* const workers_;
  Metrics* const metrics_;
  std::atomic<int> queue_limit_;
  IoThreads path_checks_{2};  // Last: its tasks post to the writer.
};

}  // namespace genesis
