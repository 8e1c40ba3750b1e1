#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/store/sqlite.h"

// The queries of jobs.db, on whichever connection: the writer's or one of ReaderPool. Each
// answers from one statement, so from one moment. Failure: the store's status. In lists a job whose
// record cannot be read is FAILED and says so, and such a checkpoint is left out: one hides no
// other.
namespace genesis {

// A job and its place in the order of acceptance.
struct StoredJob {
  training::v1::Job job;
  int64_t ordinal = 0;
};

// The job of a record of the store; of one that cannot be read, a FAILED job with that id.
training::v1::Job ParseJob(const std::string& id, const std::string& record);

// Which jobs, and in which order. Strings that are empty and lists that are empty ask for all.
struct JobQuery {
  // Where a page ended.
  struct Place {
    int64_t priority = 0;
    int64_t ordinal = 0;
  };
  std::vector<training::v1::JobState> states;
  std::string owner;
  std::map<std::string, std::string> labels;  // An empty value asks for the key alone.
  std::string id_prefix;
  training::v1::JobOrder order = training::v1::JOB_ORDER_NEWEST_FIRST;
  std::optional<Place> after;
  int64_t limit = 100;
};

absl::StatusOr<std::optional<StoredJob>> ReadJob(Database& database, const std::string& id);
absl::StatusOr<std::optional<StoredJob>> ReadJobByRequestId(Database& database,
                                                            const std::string& request_id);
// Jobs that have not ended, in order of acceptance.
absl::StatusOr<std::vector<StoredJob>> ReadOpenJobs(Database& database);
absl::StatusOr<std::vector<StoredJob>> ReadJobs(Database& database, const JobQuery& query);
absl::StatusOr<std::map<training::v1::JobState, int64_t>> CountJobsByState(Database& database);
// The last ordinal that was given out and is still there; 0 before the first.
absl::StatusOr<int64_t> ReadLastOrdinal(Database& database);

// Oldest first, at most `limit`, those after `after`.
absl::StatusOr<std::vector<training::v1::JobEvent>> ReadEvents(Database& database,
                                                               const std::string& job_id,
                                                               int64_t after, int64_t limit);
// Over all jobs, forgotten ones too; 0 before the first.
absl::StatusOr<int64_t> ReadLastSequence(Database& database);

// A checkpoint and its place in the order of writing.
struct StoredCheckpoint {
  training::v1::Checkpoint checkpoint;
  int64_t place = 0;
};
// Newest first, at most `limit`, those before `before` (0: from the newest on); of `job_id`, or of
// all jobs when it is empty.
absl::StatusOr<std::vector<StoredCheckpoint>> ReadCheckpoints(Database& database,
                                                              const std::string& job_id,
                                                              int64_t before, int64_t limit);
absl::StatusOr<std::optional<training::v1::Checkpoint>> ReadCheckpoint(Database& database,
                                                                       const std::string& id);

absl::StatusOr<std::optional<std::string>> ReadMetadata(Database& database, const std::string& key);

}  // namespace genesis
