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

// The queries of jobs.db, on any connection: the writer's or one of ReaderPool. Each runs one
// statement, so it sees one snapshot. Failure: the store's status. In lists, a job with an
// unreadable record appears as FAILED with the reason, and such a checkpoint is left out, so that
// one damaged record hides no other.
namespace genesis {

// A job and its position in the order of acceptance.
struct StoredJob {
  training::v1::Job job;
  int64_t ordinal = 0;
};

// Parses a job's record; returns a FAILED job with that id if it cannot be parsed.
training::v1::Job ParseJob(const std::string& id, const std::string& record);

// Filter and order of jobs. Empty strings and lists match all.
struct JobQuery {
  // End of a page.
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
// Unfinished jobs, in order of acceptance.
absl::StatusOr<std::vector<StoredJob>> ReadOpenJobs(Database& database);
absl::StatusOr<std::vector<StoredJob>> ReadJobs(Database& database, const JobQuery& query);
absl::StatusOr<std::map<training::v1::JobState, int64_t>> CountJobsByState(Database& database);
// Returns the last ordinal that is still stored; 0 before the first.
absl::StatusOr<int64_t> ReadLastOrdinal(Database& database);

// Returns the events after `after`, oldest first, at most `limit`.
absl::StatusOr<std::vector<training::v1::JobEvent>> ReadEvents(Database& database,
                                                               const std::string& job_id,
                                                               int64_t after, int64_t limit);
// Over all jobs, including deleted ones; 0 before the first.
absl::StatusOr<int64_t> ReadLastSequence(Database& database);

// A checkpoint and its position in the order of writing.
struct StoredCheckpoint {
  training::v1::Checkpoint checkpoint;
  int64_t place = 0;
};
// Returns the checkpoints before `before` (0: from the newest on), newest first, at most `limit`;
// of `job_id`, or of all jobs if it is empty.
absl::StatusOr<std::vector<StoredCheckpoint>> ReadCheckpoints(Database& database,
                                                              const std::string& job_id,
                                                              int64_t before, int64_t limit);
absl::StatusOr<std::optional<training::v1::Checkpoint>> ReadCheckpoint(Database& database,
                                                                       const std::string& id);

absl::StatusOr<std::optional<std::string>> ReadMetadata(Database& database, const std::string& key);

}  // namespace genesis
