#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/store/sqlite.h"

// The queries of jobs.db, on any connection: the writer's or one of ReaderPool. Each runs one
// statement, so it sees one snapshot. Failure: the store's status. So that one damaged record does
// not hide others, lists show a job with an unreadable record as FAILED with the reason, and leave
// out an unreadable checkpoint.
namespace genesis {

// A job and its position in the order of acceptance.
struct StoredJob {
  training::v1::Job job;
  int64_t ordinal = 0;
};

// Parses a job's record. Returns a FAILED job with that ID if it cannot be parsed.
training::v1::Job ParseJob(const std::string& id, const std::string& record);

// The filter and order of a list of jobs. Empty strings and lists match all jobs.
struct JobQuery {
  // The position at which a page ended.
  struct Place {
    int64_t priority = 0;
    int64_t ordinal = 0;
  };
  std::vector<training::v1::JobState> states;
  std::string owner;
  std::map<std::string, std::string> labels;  // An empty value matches any value of the key.
  std::string id_prefix;
  training::v1::JobOrder order = training::v1::JOB_ORDER_NEWEST_FIRST;
  std::optional<Place> after;
  int64_t limit = 100;
};

absl::StatusOr<std::optional<StoredJob>> ReadJob(Database& database, const std::string& id);
absl::StatusOr<std::optional<StoredJob>> ReadJobByRequestId(Database& database,
                                                            const std::string& request_id);
// Returns the unfinished jobs in the order of acceptance.
absl::StatusOr<std::vector<StoredJob>> ReadOpenJobs(Database& database);
absl::StatusOr<std::vector<StoredJob>> ReadJobs(Database& database, const JobQuery& query);
absl::StatusOr<std::map<training::v1::JobState, int64_t>> CountJobsByState(Database& database);
// Returns the largest stored ordinal; 0 if no job is stored.
absl::StatusOr<int64_t> ReadLastOrdinal(Database& database);

// A checkpoint and its position in the order in which checkpoints were written.
struct StoredCheckpoint {
  training::v1::Checkpoint checkpoint;
  int64_t place = 0;
};
// Returns at most `limit` checkpoints, newest first, of `job_id` or, if it is empty, of all jobs.
// `before` is the place at which to continue; 0 starts with the newest.
absl::StatusOr<std::vector<StoredCheckpoint>> ReadCheckpoints(Database& database,
                                                              const std::string& job_id,
                                                              int64_t before, int64_t limit);
absl::StatusOr<std::optional<training::v1::Checkpoint>> ReadCheckpoint(Database& database,
                                                                       const std::string& id);
// Returns the total size of the owner's checkpoints.
absl::StatusOr<int64_t> ReadCheckpointBytes(Database& database, const std::string& owner);

absl::StatusOr<std::optional<std::string>> ReadMetadata(Database& database, const std::string& key);

}  // namespace genesis
