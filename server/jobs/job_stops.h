#pragma once

#include <map>
#include <string>

#include "genesis/training/v1/job.pb.h"
#include "server/ledger/job_ledger.h"
#include "server/workers/workers.h"

namespace genesis {

// The reasons for which the daemon itself stops a running job.
enum class StopCause {
  kPreempted,  // A job of higher priority needs the slot.
  kRetired,    // An operator drains the worker.
  kPolicy,     // An operator disabled reduced precision with immediate effect.
  kDeadline,   // scheduling.deadline_seconds has passed.
  kHung,       // The worker makes no progress.
  kGrown,      // There are now slots for all ranks of a job that started with fewer.
};

// A stop sent by the daemon; its cause decides the job's next state after the attempt has ended.
struct StopRequest {
  StopCause cause;
  std::string reason;  // One sentence.
};

// Stops of running jobs: sends each stop to the worker, and records the daemon's own
// stops with their reasons.
//
// Owner: JobManager. Threads: the writer's only.
class JobStops {
 public:
  JobStops(JobLedger* ledger, Workers* workers) : table_(ledger->table()), workers_(workers) {}

  // Stops the job for a reason that decides its next state. Requests a checkpoint
  // unless the cause is kPolicy.
  void Stop(const std::string& job_id, const StopRequest& request);
  // Sends a stop, and signals the worker if it holds the job after scheduling.stop_grace_seconds.
  // `why` is one sentence for the log.
  void Ask(const training::v1::Job& job, bool checkpoint, const std::string& why);

  // Returns the daemon's own pending stop; nullptr for none.
  const StopRequest* Find(const std::string& job_id) const;
  // Records a hang; the pool is already ending the worker. Recorded before the commit, because the
  // worker's end may be in the same group of changes.
  void NoteHang(const std::string& job_id, const std::string& reason) {
    // Keep the first report, because ranks that wait for the hung one are reported later.
    const StopRequest* const known = Find(job_id);
    if (known != nullptr && known->cause == StopCause::kHung) return;
    stops_[job_id] = {StopCause::kHung, reason};
  }
  // Removes the stop of a job that has left its worker.
  void Forget(const std::string& job_id) { stops_.erase(job_id); }

 private:
  JobTable& table_;
  Workers* const workers_;
  std::map<std::string, StopRequest> stops_;
};

}  // namespace genesis
