#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "server/store/event_reads.h"
#include "server/store/reader_pool.h"
#include "server/store/sqlite.h"

namespace genesis {

// The durable state behind JobManager: jobs, their events and their
// checkpoints (schema.h). Owner: the daemon. Threads: the writer's, or any
// before it starts; any for readers(). Failure: any call may return the
// store's status. Every change must be made between Begin and Commit, so that
// nothing is ever half written.
class JobStore {
 public:
  struct Options {
    Database::Check check = Database::Check::kQuick;
    absl::Duration wait = absl::Seconds(5);  // Maximum wait for another process.
  };
  // Opens or creates <dir>/jobs.db, checks it and migrates its schema. The quick check stops after
  // a quarter of a second, so that start-up does not slow down as the store grows; the full check
  // does not stop. Errors as Database, and FAILED_PRECONDITION for a newer schema. Every error
  // message contains a cure.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& dir,
                                                        const Options& options);
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& dir) {
    return Open(dir, Options());
  }

  // Returns the writer's connection, for the queries of store_reads.h.
  Database& database() { return *database_; }
  // Returns the connections for all other threads.
  ReaderPool& readers() { return readers_; }

  absl::Status Begin();
  absl::Status Commit();
  void Rollback();

  // Inserts or replaces the job with this ordinal, its position in the order of acceptance.
  absl::Status PutJob(int64_t ordinal, const training::v1::Job& job);
  // Removes the job with its events and log lines; its checkpoint records only if
  // `with_checkpoints`. Deletion events of earlier jobs with this ID remain.
  absl::Status RemoveJob(const std::string& id, bool with_checkpoints);
  // Returns the event's sequence number, which is larger than all previous ones. `labels` are the
  // labels of its job after the event.
  absl::StatusOr<int64_t> AddEvent(const training::v1::JobEvent& event, const Labels& labels = {});
  // Removes all events of the job and kind except the newest 1000; for the kind "deleted", those of
  // all jobs except the newest 10,000. Records in dropped_events that some are missing.
  absl::Status PruneEvents(const std::string& job_id, const std::string& kind);
  // Stores the line of a log event.
  absl::Status AddLogLine(const training::v1::JobEvent& line);
  // Removes all log lines of the job except the newest 1000.
  absl::Status PruneLogLines(const std::string& job_id);

  struct Forgotten {
    std::string id;
    training::v1::JobState state;
    std::string owner;
    Labels labels;
  };
  // Removes finished jobs with their events but not their checkpoints: the `most`
  // that ended first, and all that ended before `ended_before` (seconds since 1970),
  // but at most `batch` in total.
  absl::StatusOr<std::vector<Forgotten>> ForgetEnded(int64_t most, int64_t ended_before,
                                                     int64_t batch);

  absl::Status PutCheckpoint(const training::v1::Checkpoint& checkpoint);
  // Changes the record of a checkpoint, which keeps its place in the order and its size.
  absl::Status UpdateCheckpoint(const training::v1::Checkpoint& checkpoint);
  absl::Status RemoveCheckpoint(const std::string& id);
  absl::Status PutMetadata(const std::string& key, const std::string& value);

  // Returns the losses of the newest finished FP32 job of a workload
  // (WorkloadKey); empty if there is none.
  absl::StatusOr<training::v1::LossCurve> FindBaseline(const std::string& workload);
  // Replaces the workload's baseline. Removes the oldest baselines if there are more than 1000.
  absl::Status PutBaseline(const std::string& workload, const std::string& job_id,
                           const training::v1::LossCurve& curve);

 private:
  JobStore(std::unique_ptr<Database> database, const std::string& path)
      : database_(std::move(database)), readers_(path) {}
  absl::Status RunOn(const char* sql, const std::string& text);

  const std::unique_ptr<Database> database_;
  ReaderPool readers_;
};

}  // namespace genesis
