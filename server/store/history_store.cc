#include "server/store/history_store.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sql_time.h"
#include "base/text/enum_names.h"
#include "base/timestamp.h"
#include "config/precision/precision.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::HistoryRow;

constexpr int64_t kSchema = 3;
constexpr int64_t kForgottenAtOnce = 5000;

// `timestamp` has the format of FormatSqlTime. NULL means not measured.
constexpr char kTables[] = R"sql(
CREATE TABLE fp16_stats(
  timestamp TEXT NOT NULL,
  job_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  mode TEXT,
  loss REAL,
  baseline_loss REAL,
  loss_scale REAL,
  training_steps INTEGER NOT NULL,
  fp16_steps INTEGER NOT NULL,
  overflow_steps INTEGER NOT NULL,
  overflow_rate REAL,
  fp16_enabled INTEGER NOT NULL,
  memory_allocated_bytes INTEGER,
  samples_per_second REAL,
  state TEXT NOT NULL
);
CREATE INDEX fp16_stats_by_time ON fp16_stats(timestamp);
CREATE INDEX fp16_stats_by_job ON fp16_stats(job_id, timestamp);
PRAGMA user_version = 1;
)sql";

// Migrates the schema from version 1 to 2. New columns are appended.
constexpr char kColumnsOf2[] = R"sql(
ALTER TABLE fp16_stats ADD COLUMN divergence_ratio REAL;
ALTER TABLE fp16_stats ADD COLUMN held_out_loss REAL;
PRAGMA user_version = 2;
)sql";

// Migrates the schema from version 2 to 3.
constexpr char kColumnsOf3[] = R"sql(
ALTER TABLE fp16_stats ADD COLUMN divergences INTEGER;
PRAGMA user_version = 3;
)sql";

constexpr char kColumns[] =
    "rowid, timestamp, job_id, step, mode, loss, baseline_loss, loss_scale, training_steps, "
    "fp16_steps, overflow_steps, overflow_rate, fp16_enabled, memory_allocated_bytes, "
    "samples_per_second, state, divergence_ratio, held_out_loss, divergences";

template <typename Value>
void BindReal(Statement& insert, int index, bool measured, Value value) {
  if (measured) {
    insert.BindReal(index, value);
  } else {
    insert.BindNull(index);
  }
}

void BindInt(Statement& insert, int index, bool measured, int64_t value) {
  if (measured) {
    insert.Bind(index, value);
  } else {
    insert.BindNull(index);
  }
}

absl::Status Insert(Statement& insert, const HistoryRow& row) {
  insert.Bind(1, FormatSqlTime(FromTimestamp(row.time())))
      .Bind(2, row.job_id())
      .Bind(3, row.step());
  if (row.mode() == training::v1::PRECISION_MODE_UNSPECIFIED) {
    insert.BindNull(4);
  } else {
    insert.Bind(4, ShortEnumName(row.mode()));
  }
  // SQLite stores NaN as NULL.
  BindReal(insert, 5, row.has_loss(), row.loss());
  BindReal(insert, 6, row.has_baseline_loss(), row.baseline_loss());
  BindReal(insert, 7, row.has_loss_scale(), row.loss_scale());
  insert.Bind(8, row.training_steps()).Bind(9, row.fp16_steps()).Bind(10, row.overflow_steps());
  BindReal(insert, 11, row.has_overflow_rate(), row.overflow_rate());
  insert.Bind(12, int64_t{row.fp16_enabled()});
  BindInt(insert, 13, row.has_memory_allocated_bytes(), row.memory_allocated_bytes());
  BindReal(insert, 14, row.has_samples_per_second(), row.samples_per_second());
  insert.Bind(15, ShortEnumName(row.state()));
  BindReal(insert, 16, row.has_divergence_ratio(), row.divergence_ratio());
  BindReal(insert, 17, row.has_held_out_loss(), row.held_out_loss());
  BindInt(insert, 18, row.has_divergences(), row.divergences());
  return insert.Run();
}

HistoryStore::Row RowOf(const Statement& found) {
  HistoryStore::Row read;
  HistoryRow& row = read.row;
  const absl::Time time = ParseSqlTime(found.Text(1));
  read.place = {.milliseconds = absl::ToUnixMillis(time), .number = found.Int(0)};
  *row.mutable_time() = ToTimestamp(time);
  row.set_job_id(found.Text(2));
  row.set_step(found.Int(3));
  row.set_mode(ParseEnumName<training::v1::PrecisionMode>(found.Text(4))
                   .value_or(training::v1::PRECISION_MODE_UNSPECIFIED));
  if (!found.IsNull(5)) row.set_loss(found.Real(5));
  if (!found.IsNull(6)) row.set_baseline_loss(found.Real(6));
  if (!found.IsNull(7)) row.set_loss_scale(found.Real(7));
  row.set_training_steps(found.Int(8));
  row.set_fp16_steps(found.Int(9));
  row.set_overflow_steps(found.Int(10));
  if (!found.IsNull(11)) row.set_overflow_rate(found.Real(11));
  row.set_fp16_enabled(found.Int(12) != 0);
  if (!found.IsNull(13)) row.set_memory_allocated_bytes(found.Int(13));
  if (!found.IsNull(14)) row.set_samples_per_second(found.Real(14));
  row.set_state(ParseEnumName<training::v1::JobState>(found.Text(15))
                    .value_or(training::v1::JOB_STATE_UNSPECIFIED));
  if (!found.IsNull(16)) row.set_divergence_ratio(found.Real(16));
  if (!found.IsNull(17)) row.set_held_out_loss(found.Real(17));
  if (!found.IsNull(18)) row.set_divergences(found.Int(18));
  return read;
}

}  // namespace

absl::StatusOr<std::vector<HistoryStore::Row>> HistoryStore::Select(const std::string& sql,
                                                                    const Query& query) {
  const auto unreadable = [](const absl::Status& status) {
    return absl::UnavailableError(absl::StrCat("the history cannot be read: ", status.message()));
  };
  absl::StatusOr<ReaderPool::Lease> reader = readers_.Borrow();
  if (!reader.ok()) return unreadable(reader.status());
  absl::StatusOr<Statement> select =
      (**reader).Prepare(absl::StrCat("SELECT ", kColumns, " FROM fp16_stats WHERE ", sql));
  if (!select.ok()) return unreadable(select.status());
  const absl::Time after = absl::FromUnixMillis(query.after.milliseconds);
  select->Bind(1, FormatSqlTime(std::max(query.since, absl::UnixEpoch())))
      .Bind(2, FormatSqlTime(after))
      .Bind(3, query.after.number)
      .Bind(4, query.limit)
      .Bind(5, query.job_id);
  std::vector<Row> rows;
  for (;;) {
    const absl::StatusOr<bool> more = select->Step();
    if (!more.ok()) return unreadable(more.status());
    if (!*more) return rows;
    rows.push_back(RowOf(*select));
  }
}

absl::StatusOr<std::vector<HistoryStore::Row>> HistoryStore::Read(const Query& query) {
  return Select(absl::StrCat(query.job_id.empty() ? "" : "job_id = ?5 AND ",
                             "timestamp >= ?1 AND (timestamp, rowid) > (?2, ?3) "
                             "ORDER BY timestamp, rowid LIMIT ?4"),
                query);
}

absl::StatusOr<std::vector<HistoryStore::Row>> HistoryStore::ReadNewest(absl::Time since,
                                                                        int64_t limit) {
  absl::StatusOr<std::vector<Row>> rows = Select(
      "timestamp >= ?1 AND (timestamp, rowid) > (?2, ?3) "
      "ORDER BY timestamp DESC, rowid DESC LIMIT ?4",
      {.since = since, .limit = limit});
  if (rows.ok()) std::reverse(rows->begin(), rows->end());
  return rows;
}

absl::Status HistoryStore::Append(const std::vector<HistoryRow>& rows) {
  absl::Status status = EnsureOpen();
  if (status.ok()) status = database_->Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  absl::StatusOr<Statement> insert = database_->Prepare(
      "INSERT INTO fp16_stats VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  status = insert.status();
  for (size_t i = 0; i < rows.size() && status.ok(); ++i) status = Insert(*insert, rows[i]);
  if (status.ok()) status = database_->Execute("COMMIT");
  if (!status.ok()) database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<bool> HistoryStore::Forget(absl::Time before) {
  absl::Status status = EnsureOpen();
  if (!status.ok()) return status;
  absl::StatusOr<Statement> remove = database_->Prepare(
      "DELETE FROM fp16_stats WHERE rowid IN "
      "(SELECT rowid FROM fp16_stats WHERE timestamp < ? LIMIT ?) RETURNING 1");
  if (!remove.ok()) return remove.status();
  remove->Bind(1, FormatSqlTime(before)).Bind(2, kForgottenAtOnce);
  for (int64_t removed = 0;; ++removed) {
    const absl::StatusOr<bool> row = remove->Step();
    if (!row.ok()) return row.status();
    if (!*row) return removed == kForgottenAtOnce;
  }
}

absl::Status HistoryStore::EnsureOpen() {
  if (database_ != nullptr) return absl::OkStatus();
  absl::Status status = Prepare();
  if (absl::IsDataLoss(status)) {
    status = PutAside();
    if (status.ok()) status = Prepare();
  }
  if (!status.ok()) database_ = nullptr;
  return status;
}

absl::Status HistoryStore::Prepare() {
  absl::StatusOr<std::unique_ptr<Database>> opened = Database::Open(path_);
  if (!opened.ok()) return opened.status();
  database_ = *std::move(opened);
  absl::Status status = database_->RunCheck(Database::Check::kQuick, absl::Milliseconds(250));
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  absl::StatusOr<Statement> version = database_->Prepare("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const absl::StatusOr<bool> row = version->Step();
  if (!row.ok()) return row.status();
  const int64_t schema = version->Int(0);
  if (schema == kSchema) return absl::OkStatus();
  if (schema >= 0 && schema < kSchema) {
    return database_->Execute(absl::StrCat("BEGIN IMMEDIATE;", schema < 1 ? kTables : "",
                                           schema < 2 ? kColumnsOf2 : "", kColumnsOf3, "COMMIT;"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path_, " has schema ", schema, "; this daemon knows ", kSchema,
                   ". Run the newer one, or move the file away: it holds nothing but history"));
}

absl::Status HistoryStore::PutAside() {
  database_ = nullptr;
  const std::string aside = absl::StrCat(
      path_, ".damaged-", absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
  std::error_code error;
  std::filesystem::rename(path_, aside, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot move the damaged ", path_, " away: ", error.message()));
  }
  for (const char* const suffix : {"-wal", "-shm"}) {
    // Either file may not exist, so errors are ignored.
    std::filesystem::rename(path_ + suffix, aside + suffix, error);
  }
  spdlog::error("{} is damaged; it is now {}, and the history begins anew", path_, aside);
  return absl::OkStatus();
}

}  // namespace genesis
