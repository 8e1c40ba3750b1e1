#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "server/store/sqlite.h"

namespace genesis {

// What the daemon must not forget: jobs, their moves, their checkpoints.
// Purpose: durable truth behind JobManager; owner: the daemon; used by the writer thread only (and
// before it starts). Failure: any call may return the store's status; nothing is half written,
// because every change is made between Begin and Commit.
//
// Schema 2 (PRAGMA user_version), readable with the sqlite3 shell; older ones are brought up to it:
//   jobs(id, ordinal, state, reason, create_time, job)  job is a serialized training.v1.Job
//   job_moves(job_id, time, from_state, to_state, reason)
//   checkpoints(id, job_id, step, path, checkpoint)  checkpoint is a serialized Checkpoint
//   baselines(workload, job_id, time, curve)  curve is a serialized LossCurve of a job in FP32
class JobStore {
 public:
  // Opens or creates <dir>/jobs.db. FAILED_PRECONDITION for a schema newer than this program's.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& dir);

  // In the order of acceptance.
  absl::StatusOr<std::vector<training::v1::Job>> LoadJobs();
  // Oldest first.
  absl::StatusOr<std::vector<training::v1::Checkpoint>> LoadCheckpoints();

  absl::Status Begin();
  absl::Status Commit();
  void Rollback();

  // Inserts or replaces by id; keeps the order of acceptance.
  absl::Status PutJob(const training::v1::Job& job);
  absl::Status AddMove(const std::string& job_id, training::v1::JobState from,
                       training::v1::JobState to, const std::string& reason);
  absl::Status PutCheckpoint(const training::v1::Checkpoint& checkpoint);
  absl::Status RemoveCheckpoint(const std::string& id);

  // Losses of the newest finished FP32 job of a workload (WorkloadKey); empty when there are none.
  absl::StatusOr<training::v1::LossCurve> FindBaseline(const std::string& workload);
  // Replaces that of the workload; the oldest beyond 1000 go.
  absl::Status PutBaseline(const std::string& workload, const std::string& job_id,
                           const training::v1::LossCurve& curve);

 private:
  explicit JobStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  absl::Status Migrate();
  absl::StatusOr<int64_t> SchemaVersion();

  std::unique_ptr<Database> database_;
};

}  // namespace genesis
