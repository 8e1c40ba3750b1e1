#include "server/store/store_reads.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/text.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::Job;
using training::v1::JobState;

constexpr char kJobColumns[] =
    "SELECT j.ordinal, j.id, r.job FROM jobs j CROSS JOIN job_records r ON r.ordinal = j.ordinal ";

absl::Status Unreadable(const std::string& what) {
  return absl::DataLossError(absl::StrCat("the store's record of ", what,
                                          " cannot be read; restore jobs.db from a backup"));
}

// Calls `take` for each row.
template <typename Take>
absl::Status ForEachRow(Statement& query, Take take) {
  for (;;) {
    const absl::StatusOr<bool> row = query.Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    absl::Status taken = take();
    if (!taken.ok()) return taken;
  }
}

absl::StatusOr<std::vector<StoredJob>> TakeJobs(Statement& query) {
  std::vector<StoredJob> jobs;
  absl::Status status = ForEachRow(query, [&] {
    StoredJob& each = jobs.emplace_back();
    each.ordinal = query.Int(0);
    each.job = ParseJob(query.Text(1), query.Text(2));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return jobs;
}

absl::StatusOr<std::optional<StoredJob>> ReadOne(Database& database, const char* column,
                                                 const std::string& value) {
  absl::StatusOr<Statement> query = database.Prepare(
      absl::StrCat(kJobColumns, "WHERE j.", column, " = ?1 ORDER BY j.ordinal LIMIT 1"));
  if (!query.ok()) return query.status();
  query->Bind(1, value);
  absl::StatusOr<std::vector<StoredJob>> jobs = TakeJobs(*query);
  if (!jobs.ok()) return jobs.status();
  if (jobs->empty()) return std::nullopt;
  return std::move(jobs->front());
}

absl::StatusOr<int64_t> ReadNumber(Database& database, const char* sql) {
  absl::StatusOr<Statement> query = database.Prepare(sql);
  if (!query.ok()) return query.status();
  const absl::StatusOr<bool> row = query->Step();
  if (!row.ok()) return row.status();
  return *row ? query->Int(0) : 0;
}

}  // namespace

Job ParseJob(const std::string& id, const std::string& record) {
  Job job;
  if (job.ParseFromString(record)) return job;
  job.Clear();
  job.set_id(OneLine(id, kMaxNameBytes));
  job.set_state(training::v1::JOB_STATE_FAILED);
  job.set_state_reason(
      "the store's record of this job cannot be read; restore jobs.db from a backup, or delete the "
      "job");
  job.mutable_failure()->set_cause(training::v1::FAILURE_CAUSE_INTERNAL);
  job.mutable_failure()->set_message(job.state_reason());
  spdlog::error("job {}: {}", job.id(), job.state_reason());
  return job;
}

absl::StatusOr<std::optional<StoredJob>> ReadJob(Database& database, const std::string& id) {
  return ReadOne(database, "id", id);
}

absl::StatusOr<std::optional<StoredJob>> ReadJobByRequestId(Database& database,
                                                            const std::string& request_id) {
  return ReadOne(database, "request_id", request_id);
}

absl::StatusOr<std::vector<StoredJob>> ReadOpenJobs(Database& database) {
  absl::StatusOr<Statement> query =
      database.Prepare(absl::StrCat(kJobColumns, "WHERE j.end_time IS NULL ORDER BY j.ordinal"));
  if (!query.ok()) return query.status();
  absl::StatusOr<std::vector<StoredJob>> jobs = TakeJobs(*query);
  if (!jobs.ok()) return jobs.status();
  std::erase_if(*jobs, [](const StoredJob& each) {
    return each.job.state() == training::v1::JOB_STATE_FAILED;  // Unreadable record.
  });
  return jobs;
}

absl::StatusOr<std::map<JobState, int64_t>> CountJobsByState(Database& database) {
  absl::StatusOr<Statement> query =
      database.Prepare("SELECT state, count(*) FROM jobs GROUP BY state");
  if (!query.ok()) return query.status();
  std::map<JobState, int64_t> counts;
  absl::Status status = ForEachRow(*query, [&] {
    const auto state = ParseEnumName<JobState>(query->Text(0));
    counts[state.value_or(training::v1::JOB_STATE_UNSPECIFIED)] = query->Int(1);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return counts;
}

absl::StatusOr<int64_t> ReadLastOrdinal(Database& database) {
  return ReadNumber(database, "SELECT coalesce(max(ordinal), 0) FROM jobs");
}

absl::StatusOr<std::vector<StoredCheckpoint>> ReadCheckpoints(Database& database,
                                                              const std::string& job_id,
                                                              int64_t before, int64_t limit) {
  absl::StatusOr<Statement> query = database.Prepare(
      absl::StrCat("SELECT rowid, id, checkpoint FROM checkpoints WHERE (?1 = 0 OR rowid < ?1) ",
                   job_id.empty() ? "" : "AND job_id = ?3 ", "ORDER BY rowid DESC LIMIT ?2"));
  if (!query.ok()) return query.status();
  query->Bind(1, before).Bind(2, limit);
  if (!job_id.empty()) query->Bind(3, job_id);
  std::vector<StoredCheckpoint> checkpoints;
  absl::Status status = ForEachRow(*query, [&] {
    StoredCheckpoint& each = checkpoints.emplace_back();
    each.place = query->Int(0);
    if (each.checkpoint.ParseFromString(query->Text(2))) return absl::OkStatus();
    const absl::Status unreadable = Unreadable(absl::StrCat("checkpoint ", query->Text(1)));
    spdlog::error("{}", std::string(unreadable.message()));
    checkpoints.pop_back();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return checkpoints;
}

absl::StatusOr<std::optional<Checkpoint>> ReadCheckpoint(Database& database,
                                                         const std::string& id) {
  absl::StatusOr<Statement> query =
      database.Prepare("SELECT checkpoint FROM checkpoints WHERE id = ?1");
  if (!query.ok()) return query.status();
  query->Bind(1, id);
  const absl::StatusOr<bool> row = query->Step();
  if (!row.ok()) return row.status();
  if (!*row) return std::nullopt;
  Checkpoint checkpoint;
  if (!checkpoint.ParseFromString(query->Text(0))) {
    return Unreadable(absl::StrCat("checkpoint ", id));
  }
  return checkpoint;
}

absl::StatusOr<int64_t> ReadCheckpointBytes(Database& database, const std::string& owner) {
  absl::StatusOr<Statement> query =
      database.Prepare("SELECT coalesce(sum(bytes), 0) FROM checkpoint_bytes WHERE owner = ?1");
  if (!query.ok()) return query.status();
  query->Bind(1, owner);
  const absl::StatusOr<bool> row = query->Step();
  if (!row.ok()) return row.status();
  return query->Int(0);
}

absl::StatusOr<std::optional<std::string>> ReadMetadata(Database& database,
                                                        const std::string& key) {
  absl::StatusOr<Statement> query = database.Prepare("SELECT value FROM facts WHERE key = ?1");
  if (!query.ok()) return query.status();
  query->Bind(1, key);
  const absl::StatusOr<bool> row = query->Step();
  if (!row.ok()) return row.status();
  if (!*row) return std::nullopt;
  return query->Text(0);
}

}  // namespace genesis
