#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "server/auth/caller.h"
#include "server/base/callback.h"
#include "server/ledger/job_ledger.h"
#include "server/workers/workers.h"

namespace genesis {

// Requests of users to take, import and remove checkpoints, and their pending callbacks.
//
// Owner: JobManager. Threads: any for Take, Record and Forget; the writer's for the rest.
class CheckpointRequests {
 public:
  CheckpointRequests(JobLedger* ledger, Workers* workers)
      : table_(ledger->table()), writer_(ledger->writer()), workers_(workers) {}

  // Runs the callback when the checkpoint is durable. FAILED_PRECONDITION unless the job is
  // RUNNING; PERMISSION_DENIED unless the caller owns the job or is an admin.
  void Take(const Caller& caller, const std::string& job_id,
            const Callback<training::v1::Checkpoint>& callback);
  // Records a checkpoint that a user named or imported.
  void Record(const training::v1::Checkpoint& checkpoint,
              const Callback<training::v1::Checkpoint>& callback);
  // Removes the record and passes it to the callback, which removes the file. NOT_FOUND;
  // FAILED_PRECONDITION if an unfinished job may need it; PERMISSION_DENIED like Take.
  void Forget(const Caller& caller, const std::string& id,
              const Callback<training::v1::Checkpoint>& callback);

  // Removes the records of the job's unnamed checkpoints after `step`, to which the job went back.
  void ForgetAfter(const std::string& job_id, int64_t step);
  // Returns the ID of an unfinished job that may need the checkpoint; "" if there is none.
  std::string NeededBy(const training::v1::Checkpoint& checkpoint) const;
  bool IsAwaited(const std::string& job_id) const { return waiters_.contains(job_id); }
  // Sends the job's worker a request for a checkpoint.
  void Send(const std::string& job_id);
  // Repeats pending requests to the worker of a new attempt. Any checkpoint of it answers them.
  void SendAgain(const std::string& job_id);
  // Passes a checkpoint of a job to the callers that requested one at or before its step. One that
  // was being written when a caller requested a checkpoint is older and does not answer it.
  void Answer(const training::v1::Checkpoint& checkpoint);
  // Ends the pending requests of the job with an error.
  void Refuse(const std::string& job_id, const absl::Status& status);
  void RefuseWhileStoreFails();

 private:
  struct Waiter {
    Callback<training::v1::Checkpoint> callback;
    int64_t least_step = 0;  // Step of the job at the request.
  };

  // Sets the job's latest checkpoint to the newest one that is recorded.
  void FindLatest(const std::string& job_id);
  absl::StatusOr<training::v1::Checkpoint> ForgetNow(const Caller& caller, const std::string& id);

  JobTable& table_;
  Writer& writer_;
  Workers* const workers_;
  std::map<std::string, std::vector<Waiter>> waiters_;
};

}  // namespace genesis
