#include "server/store/job_store.h"

#include <google/protobuf/util/time_util.h>

#include "absl/strings/str_cat.h"
#include "config/job_names.h"

namespace genesis {
namespace {

using google::protobuf::util::TimeUtil;

// What brings the schema from each version to the next; the first makes it from nothing.
constexpr const char* kMigrations[] = {R"sql(
CREATE TABLE jobs(
  id TEXT PRIMARY KEY,
  ordinal INTEGER NOT NULL UNIQUE,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  create_time TEXT NOT NULL,
  job BLOB NOT NULL
) STRICT;
CREATE TABLE job_moves(
  job_id TEXT NOT NULL,
  time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  from_state TEXT NOT NULL,
  to_state TEXT NOT NULL,
  reason TEXT NOT NULL
) STRICT;
CREATE INDEX job_moves_by_job ON job_moves(job_id);
CREATE TABLE checkpoints(
  id TEXT PRIMARY KEY,
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  path TEXT NOT NULL,
  checkpoint BLOB NOT NULL
) STRICT;
PRAGMA user_version = 1;
)sql",
                                       R"sql(
CREATE TABLE baselines(
  workload BLOB PRIMARY KEY,
  job_id TEXT NOT NULL,
  time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  curve BLOB NOT NULL
) STRICT;
PRAGMA user_version = 2;
)sql"};
constexpr int64_t kSchemaVersion = std::size(kMigrations);

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& dir) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(dir + "/jobs.db");
  if (!database.ok()) return database.status();
  std::unique_ptr<JobStore> store(new JobStore(*std::move(database)));
  const absl::Status migrated = store->Migrate();
  if (!migrated.ok()) return migrated;
  return store;
}

absl::StatusOr<int64_t> JobStore::SchemaVersion() {
  absl::StatusOr<Statement> query = database_->Prepare("PRAGMA user_version");
  if (!query.ok()) return query.status();
  const absl::StatusOr<bool> row = query->Step();
  if (!row.ok()) return row.status();
  return query->Int(0);
}

absl::Status JobStore::Migrate() {
  const absl::StatusOr<int64_t> version = SchemaVersion();
  if (!version.ok()) return version.status();
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store has schema ", *version, ", this genesisd knows up to ",
                     kSchemaVersion, "; run the newer genesisd, or another --data-dir"));
  }
  if (*version == kSchemaVersion) return absl::OkStatus();
  absl::Status status = Begin();
  for (int64_t i = *version; i < kSchemaVersion && status.ok(); ++i) {
    status = database_->Execute(kMigrations[i]);
  }
  if (status.ok()) return Commit();
  Rollback();
  return status;
}

absl::StatusOr<std::vector<training::v1::Job>> JobStore::LoadJobs() {
  absl::StatusOr<Statement> query = database_->Prepare("SELECT id, job FROM jobs ORDER BY ordinal");
  if (!query.ok()) return query.status();
  std::vector<training::v1::Job> jobs;
  for (;;) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) return row.status();
    if (!*row) return jobs;
    if (!jobs.emplace_back().ParseFromString(query->Text(1))) {
      return absl::DataLossError(absl::StrCat("the store's record of job ", query->Text(0),
                                              " cannot be read; restore jobs.db from a backup"));
    }
  }
}

absl::StatusOr<std::vector<training::v1::Checkpoint>> JobStore::LoadCheckpoints() {
  absl::StatusOr<Statement> query =
      database_->Prepare("SELECT id, checkpoint FROM checkpoints ORDER BY rowid");
  if (!query.ok()) return query.status();
  std::vector<training::v1::Checkpoint> checkpoints;
  for (;;) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) return row.status();
    if (!*row) return checkpoints;
    if (!checkpoints.emplace_back().ParseFromString(query->Text(1))) {
      return absl::DataLossError(absl::StrCat("the store's record of checkpoint ", query->Text(0),
                                              " cannot be read; restore jobs.db from a backup"));
    }
  }
}

absl::Status JobStore::Begin() { return database_->Execute("BEGIN IMMEDIATE"); }

absl::Status JobStore::Commit() {
  absl::Status status = database_->Execute("COMMIT");
  if (!status.ok()) Rollback();
  return status;
}

void JobStore::Rollback() {
  // Fails only when SQLite has rolled back by itself, which is what is wanted.
  database_->Execute("ROLLBACK").IgnoreError();
}

absl::Status JobStore::PutJob(const training::v1::Job& job) {
  absl::StatusOr<Statement> put = database_->Prepare(
      "INSERT INTO jobs(id, ordinal, state, reason, create_time, job) "
      "VALUES(?1, (SELECT coalesce(max(ordinal), 0) + 1 FROM jobs), ?2, ?3, ?4, ?5) "
      "ON CONFLICT(id) DO UPDATE SET state = ?2, reason = ?3, job = ?5");
  if (!put.ok()) return put.status();
  return put->Bind(1, job.id())
      .Bind(2, JobStateName(job.state()))
      .Bind(3, job.state_reason())
      .Bind(4, TimeUtil::ToString(job.create_time()))
      .BindBlob(5, job.SerializeAsString())
      .Run();
}

absl::Status JobStore::AddMove(const std::string& job_id, training::v1::JobState from,
                               training::v1::JobState to, const std::string& reason) {
  absl::StatusOr<Statement> add = database_->Prepare(
      "INSERT INTO job_moves(job_id, from_state, to_state, reason) VALUES(?1, ?2, ?3, ?4)");
  if (!add.ok()) return add.status();
  return add->Bind(1, job_id)
      .Bind(2, JobStateName(from))
      .Bind(3, JobStateName(to))
      .Bind(4, reason)
      .Run();
}

absl::Status JobStore::PutCheckpoint(const training::v1::Checkpoint& checkpoint) {
  absl::StatusOr<Statement> put = database_->Prepare(
      "INSERT INTO checkpoints(id, job_id, step, path, checkpoint) VALUES(?1, ?2, ?3, ?4, ?5) "
      "ON CONFLICT(id) DO UPDATE SET step = ?3, path = ?4, checkpoint = ?5");
  if (!put.ok()) return put.status();
  return put->Bind(1, checkpoint.id())
      .Bind(2, checkpoint.job_id())
      .Bind(3, checkpoint.step())
      .Bind(4, checkpoint.path())
      .BindBlob(5, checkpoint.SerializeAsString())
      .Run();
}

absl::StatusOr<training::v1::LossCurve> JobStore::FindBaseline(const std::string& workload) {
  absl::StatusOr<Statement> find =
      database_->Prepare("SELECT curve FROM baselines WHERE workload = ?1");
  if (!find.ok()) return find.status();
  find->BindBlob(1, workload);
  const absl::StatusOr<bool> row = find->Step();
  if (!row.ok()) return row.status();
  training::v1::LossCurve curve;
  // A curve that cannot be read is one that is not there: it only helps.
  if (*row && !curve.ParseFromString(find->Text(0))) curve.Clear();
  return curve;
}

absl::Status JobStore::PutBaseline(const std::string& workload, const std::string& job_id,
                                   const training::v1::LossCurve& curve) {
  absl::StatusOr<Statement> put = database_->Prepare(
      "INSERT INTO baselines(workload, job_id, curve) VALUES(?1, ?2, ?3) "
      "ON CONFLICT(workload) DO UPDATE SET job_id = ?2, curve = ?3, "
      "time = strftime('%Y-%m-%d %H:%M:%f', 'now')");
  if (!put.ok()) return put.status();
  absl::Status status =
      put->BindBlob(1, workload).Bind(2, job_id).BindBlob(3, curve.SerializeAsString()).Run();
  if (!status.ok()) return status;
  return database_->Execute(
      "DELETE FROM baselines WHERE workload NOT IN "
      "(SELECT workload FROM baselines ORDER BY time DESC LIMIT 1000)");
}

absl::Status JobStore::RemoveCheckpoint(const std::string& id) {
  absl::StatusOr<Statement> remove = database_->Prepare("DELETE FROM checkpoints WHERE id = ?1");
  if (!remove.ok()) return remove.status();
  return remove->Bind(1, id).Run();
}

}  // namespace genesis
