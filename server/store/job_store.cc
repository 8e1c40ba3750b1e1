#include "server/store/job_store.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "server/store/schema.h"
#include "server/store/store_reads.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// Longer than a check of 10,000 jobs takes, but short compared with the start-up limit.
constexpr absl::Duration kQuickCheckLimit = absl::Milliseconds(250);
constexpr int64_t kMaxOfKind = 1000;
constexpr int64_t kMaxDeletions = 10000;
constexpr int64_t kMaxLogLines = 1000;

// Adds the cure to the error message of a store that cannot be opened.
absl::Status WithAdvice(const absl::Status& status, const std::string& path) {
  const char* advice = "";
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      advice =
          "; another process holds it (fuser names which): end that, then start genesisd again";
      break;
    case absl::StatusCode::kResourceExhausted:
      advice = "; free some space, or choose another folder with --data-dir";
      break;
    case absl::StatusCode::kDataLoss: {
      advice =
          "; restore it from the newest file in backups beside it, or move it away to begin anew";
      // A damaged schema fails the first statement, before the check.
      const char* malformed = "database disk image is malformed";
      if (absl::StrContains(status.message(), "refused a statement") &&
          absl::StrContains(status.message(), malformed)) {
        return absl::DataLossError(
            absl::StrCat("the store ", path, " is damaged: ", malformed, advice));
      }
      break;
    }
    case absl::StatusCode::kFailedPrecondition:
      if (absl::StrContains(status.message(), "schema")) return status;
      advice = "; mend its owner and permissions, and those of its folder";
      break;
    default:
      return status;
  }
  const std::string about =
      absl::StrContains(status.message(), path) ? "" : absl::StrCat(" (", path, ")");
  return absl::Status(status.code(), absl::StrCat(status.message(), about, advice));
}

// Creates the store under a temporary name first. So an empty file at `path` is a lost store, not a
// half-created one, and is not replaced silently.
absl::Status MakeIfMissing(const std::string& path, const Database::Options& connection) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(path, error)) {
    if (fs::file_size(path, error) > 0 || error) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the store ", path, " is empty (0 bytes)"));
  }
  const std::string unfinished = path + ".new";
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(unfinished + suffix, error);
  {
    absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(unfinished, connection);
    if (!database.ok()) return database.status();
    absl::Status status = BringUpSchema(**database);
    if (!status.ok()) return status;
  }
  fs::rename(unfinished, path, error);
  return error ? absl::FailedPreconditionError(
                     absl::StrCat("cannot create the store ", path, ": ", error.message()))
               : absl::OkStatus();
}

absl::Status CheckStore(Database& database, const JobStore::Options& options,
                        const std::string& path) {
  const bool full = options.check == Database::Check::kFull;
  absl::Status status =
      database.RunCheck(options.check, full ? absl::InfiniteDuration() : kQuickCheckLimit);
  if (!absl::IsDeadlineExceeded(status)) return status;
  spdlog::info(
      "the store {} is too large to be checked whole within {} at every start; no fault "
      "was found so far (store.check: full takes the time)",
      path, absl::FormatDuration(kQuickCheckLimit));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(const std::string& dir,
                                                         const Options& options) {
  const std::string path = dir + "/jobs.db";
  Database::Options connection;
  connection.wait = options.wait;
  if (absl::Status made = MakeIfMissing(path, connection); !made.ok()) {
    return WithAdvice(made, path);
  }
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path, connection);
  if (!database.ok()) return WithAdvice(database.status(), path);
  absl::Status status = CheckStore(**database, options, path);
  if (status.ok()) status = BringUpSchema(**database);
  if (!status.ok()) return WithAdvice(status, path);
  return std::unique_ptr<JobStore>(new JobStore(*std::move(database), path));
}

absl::Status JobStore::Begin() { return database_->Execute("BEGIN IMMEDIATE"); }

absl::Status JobStore::Commit() {
  absl::Status status = database_->Execute("COMMIT");
  if (!status.ok()) Rollback();
  return status;
}

void JobStore::Rollback() {
  // Fails only if SQLite has already rolled back.
  database_->Execute("ROLLBACK").IgnoreError();
}

absl::Status JobStore::RunOn(const char* sql, const std::string& text) {
  absl::StatusOr<Statement> statement = database_->Prepare(sql);
  if (!statement.ok()) return statement.status();
  return statement->Bind(1, text).Run();
}

absl::Status JobStore::PutJob(int64_t ordinal, const training::v1::Job& job) {
  return WriteJobRows(*database_, ordinal, job);
}

absl::Status JobStore::RemoveJob(const std::string& id, bool with_checkpoints) {
  absl::Status status;
  for (const char* sql :
       {"DELETE FROM job_labels WHERE ordinal = (SELECT ordinal FROM jobs WHERE id = ?1)",
        "DELETE FROM job_records WHERE ordinal = (SELECT ordinal FROM jobs WHERE id = ?1)",
        "DELETE FROM events WHERE job_id = ?1 AND kind <> 'deleted'",
        "DELETE FROM dropped_events WHERE job_id = ?1", "DELETE FROM log_lines WHERE job_id = ?1",
        "DELETE FROM jobs WHERE id = ?1"}) {
    if (status.ok()) status = RunOn(sql, id);
  }
  if (!status.ok() || !with_checkpoints) return status;
  return RunOn("DELETE FROM checkpoints WHERE job_id = ?1", id);
}

absl::StatusOr<int64_t> JobStore::AddEvent(const training::v1::JobEvent& event,
                                           const Labels& labels) {
  return WriteEventRow(*database_, event, labels);
}

absl::Status JobStore::PruneEvents(const std::string& job_id, const std::string& kind) {
  const bool deletions = kind == "deleted";
  const std::string of_kind = deletions ? "kind = 'deleted'" : "job_id = ?1 AND kind = ?2";
  const auto bind = [&](Statement& statement) {
    if (!deletions) statement.Bind(1, job_id).Bind(2, kind);
  };
  int64_t newest = 0;
  {
    absl::StatusOr<Statement> find = database_->Prepare(absl::StrCat(
        "SELECT sequence FROM events WHERE ", of_kind, " ORDER BY sequence DESC LIMIT 1 OFFSET ",
        deletions ? kMaxDeletions : kMaxOfKind));
    if (!find.ok()) return find.status();
    bind(*find);
    const absl::StatusOr<bool> row = find->Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    newest = find->Int(0);
  }
  absl::StatusOr<Statement> prune = database_->Prepare(
      absl::StrCat("DELETE FROM events WHERE ", of_kind, " AND sequence <= ", newest));
  if (!prune.ok()) return prune.status();
  bind(*prune);
  absl::Status status = prune->Run();
  if (!status.ok()) return status;
  absl::StatusOr<Statement> note = database_->Prepare(
      "INSERT INTO dropped_events(job_id, kind, sequence) VALUES(?1, ?2, ?3) "
      "ON CONFLICT(job_id, kind) DO UPDATE SET sequence = max(sequence, ?3)");
  if (!note.ok()) return note.status();
  return note->Bind(1, deletions ? std::string() : job_id).Bind(2, kind).Bind(3, newest).Run();
}

absl::Status JobStore::AddLogLine(const training::v1::JobEvent& line) {
  return WriteLogLineRow(*database_, line);
}

absl::Status JobStore::PruneLogLines(const std::string& job_id) {
  absl::StatusOr<Statement> prune = database_->Prepare(
      "DELETE FROM log_lines WHERE job_id = ?1 AND number <= (SELECT number FROM log_lines "
      "WHERE job_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)");
  if (!prune.ok()) return prune.status();
  return prune->Bind(1, job_id).Bind(2, kMaxLogLines).Run();
}

absl::StatusOr<std::vector<JobStore::Forgotten>> JobStore::ForgetEnded(int64_t most,
                                                                       int64_t ended_before,
                                                                       int64_t batch) {
  std::vector<Forgotten> forgotten;
  {
    absl::StatusOr<Statement> oldest = database_->Prepare(
        "SELECT id, state, end_time, owner FROM jobs WHERE end_time IS NOT NULL "
        "ORDER BY end_time, ordinal LIMIT ?1");
    if (!oldest.ok()) return oldest.status();
    oldest->Bind(1, batch);
    for (;;) {
      const absl::StatusOr<bool> row = oldest->Step();
      if (!row.ok()) return row.status();
      const auto taken = static_cast<int64_t>(forgotten.size());
      if (!*row || (taken >= most && oldest->Int(2) >= ended_before)) break;
      Forgotten& each = forgotten.emplace_back();
      each.id = oldest->Text(0);
      each.state = ParseEnumName<training::v1::JobState>(oldest->Text(1))
                       .value_or(training::v1::JOB_STATE_UNSPECIFIED);
      each.owner = oldest->Text(3);
    }
  }
  for (Forgotten& each : forgotten) {
    absl::StatusOr<std::optional<StoredJob>> stored = ReadJob(*database_, each.id);
    if (stored.ok() && *stored) each.labels = (*stored)->job.labels();
    absl::Status status = RemoveJob(each.id, /*with_checkpoints=*/false);
    if (!status.ok()) return status;
  }
  return forgotten;
}

absl::Status JobStore::PutMetadata(const std::string& key, const std::string& value) {
  absl::StatusOr<Statement> put = database_->Prepare(
      "INSERT INTO facts(key, value) VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2");
  if (!put.ok()) return put.status();
  return put->Bind(1, key).BindBlob(2, value).Run();
}

absl::Status JobStore::PutCheckpoint(const training::v1::Checkpoint& checkpoint) {
  // Removing it first makes a rewritten checkpoint the newest. REPLACE skips the delete trigger.
  if (absl::Status removed = RemoveCheckpoint(checkpoint.id()); !removed.ok()) return removed;
  absl::StatusOr<Statement> put = database_->Prepare(
      "INSERT INTO checkpoints(id, job_id, step, path, checkpoint, owner, size_bytes) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)");
  if (!put.ok()) return put.status();
  return put->Bind(1, checkpoint.id())
      .Bind(2, checkpoint.job_id())
      .Bind(3, checkpoint.step())
      .Bind(4, checkpoint.path())
      .BindBlob(5, checkpoint.SerializeAsString())
      .Bind(6, checkpoint.owner())
      .Bind(7, checkpoint.size_bytes())
      .Run();
}

absl::Status JobStore::UpdateCheckpoint(const training::v1::Checkpoint& checkpoint) {
  absl::StatusOr<Statement> update =
      database_->Prepare("UPDATE checkpoints SET checkpoint = ?2 WHERE id = ?1");
  if (!update.ok()) return update.status();
  return update->Bind(1, checkpoint.id()).BindBlob(2, checkpoint.SerializeAsString()).Run();
}

absl::StatusOr<training::v1::LossCurve> JobStore::FindBaseline(const std::string& workload) {
  absl::StatusOr<Statement> find =
      database_->Prepare("SELECT curve FROM baselines WHERE workload = ?1");
  if (!find.ok()) return find.status();
  find->BindBlob(1, workload);
  const absl::StatusOr<bool> row = find->Step();
  if (!row.ok()) return row.status();
  training::v1::LossCurve curve;
  // An unreadable curve counts as missing, because it is only used for comparison.
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
  return RunOn("DELETE FROM checkpoints WHERE id = ?1", id);
}

}  // namespace genesis
