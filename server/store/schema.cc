#include "server/store/schema.h"

#include <google/protobuf/util/time_util.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text/enum_names.h"
#include "base/text/json.h"
#include "base/text/message_text.h"
#include "config/job/final_state.h"
#include "server/store/event_reads.h"

namespace genesis {
namespace {

using google::protobuf::util::TimeUtil;
using training::v1::Job;
using training::v1::JobEvent;
using training::v1::JobState;

constexpr char kSchema1[] = R"sql(
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
)sql";

constexpr char kSchema2[] = R"sql(
CREATE TABLE baselines(
  workload BLOB PRIMARY KEY,
  job_id TEXT NOT NULL,
  time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  curve BLOB NOT NULL
) STRICT;
)sql";

constexpr char kSchema3[] = R"sql(
ALTER TABLE jobs RENAME TO jobs_of_schema_2;
CREATE TABLE jobs(
  ordinal INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  owner TEXT NOT NULL,
  priority INTEGER NOT NULL,
  request_id TEXT,
  create_time TEXT NOT NULL,
  end_time INTEGER
) STRICT;
CREATE INDEX jobs_by_priority ON jobs(priority DESC, ordinal);
CREATE INDEX jobs_by_request ON jobs(request_id) WHERE request_id IS NOT NULL;
CREATE INDEX jobs_not_ended ON jobs(ordinal) WHERE end_time IS NULL;
CREATE INDEX jobs_ended ON jobs(end_time, ordinal) WHERE end_time IS NOT NULL;
CREATE TABLE job_records(ordinal INTEGER PRIMARY KEY, job BLOB NOT NULL) STRICT;
CREATE TABLE job_labels(
  ordinal INTEGER NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY(ordinal, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE events(
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id TEXT NOT NULL,
  time TEXT NOT NULL,
  event BLOB NOT NULL
) STRICT;
CREATE INDEX events_by_job ON events(job_id);
CREATE INDEX checkpoints_by_job ON checkpoints(job_id);
CREATE TABLE facts(key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
)sql";

constexpr char kSchema4[] = R"sql(
ALTER TABLE events ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN state TEXT NOT NULL DEFAULT '';
CREATE TABLE log_lines(
  number INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL,
  time TEXT NOT NULL,
  line TEXT NOT NULL
) STRICT;
CREATE INDEX log_lines_by_job ON log_lines(job_id);
CREATE TABLE dropped_events(job_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID;
)sql";

constexpr char kSchema5[] = R"sql(
CREATE TABLE webhook_endpoints(name TEXT PRIMARY KEY, cursor INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE webhook_deliveries(
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  endpoint TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  job_id TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  next_attempt INTEGER,
  error TEXT NOT NULL,
  event BLOB NOT NULL,
  UNIQUE(endpoint, sequence)
) STRICT;
CREATE INDEX webhook_deliveries_pending
  ON webhook_deliveries(endpoint, job_id, sequence, create_time) WHERE next_attempt IS NOT NULL;
CREATE INDEX webhook_deliveries_dead ON webhook_deliveries(number) WHERE next_attempt IS NULL;
)sql";

constexpr char kSchema6[] = R"sql(
ALTER TABLE events ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
UPDATE events SET labels = (
  SELECT json_group_object(l.key, l.value)
  FROM jobs j JOIN job_labels l ON l.ordinal = j.ordinal WHERE j.id = events.job_id
) WHERE job_id IN (SELECT j.id FROM jobs j JOIN job_labels l ON l.ordinal = j.ordinal);
ALTER TABLE dropped_events RENAME TO dropped_events_of_schema_5;
CREATE TABLE dropped_events(
  job_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY(job_id, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO dropped_events SELECT job_id, '', sequence FROM dropped_events_of_schema_5;
DROP TABLE dropped_events_of_schema_5;
ALTER TABLE checkpoints ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT 0;
CREATE TABLE checkpoint_bytes(owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER checkpoint_inserted AFTER INSERT ON checkpoints BEGIN
  INSERT INTO checkpoint_bytes VALUES(NEW.owner, NEW.size_bytes)
    ON CONFLICT(owner) DO UPDATE SET bytes = bytes + NEW.size_bytes;
END;
CREATE TRIGGER checkpoint_deleted AFTER DELETE ON checkpoints BEGIN
  UPDATE checkpoint_bytes SET bytes = bytes - OLD.size_bytes WHERE owner = OLD.owner;
END;
)sql";

constexpr char kSchema7[] = R"sql(
CREATE TABLE sweeps(
  ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  ended INTEGER NOT NULL,
  cursor INTEGER NOT NULL,
  sweep BLOB NOT NULL
) STRICT;
CREATE INDEX sweeps_open ON sweeps(ordinal) WHERE ended = 0;
CREATE TABLE sweep_trials(
  sweep INTEGER NOT NULL,
  number INTEGER NOT NULL,
  trial BLOB NOT NULL,
  PRIMARY KEY(sweep, number)
) STRICT, WITHOUT ROWID;
)sql";

// Run after the rows have their owners and sizes.
constexpr char kTotals6[] =
    "INSERT INTO checkpoint_bytes SELECT owner, sum(size_bytes) FROM checkpoints GROUP BY owner";

// Created after the rows have their kinds.
constexpr char kIndexes4[] = R"sql(
CREATE INDEX events_by_kind ON events(job_id, kind);
CREATE INDEX events_of_deletions ON events(sequence) WHERE kind = 'deleted';
)sql";

constexpr char kDropSchema2[] = R"sql(
DROP TABLE jobs_of_schema_2;
DROP TABLE job_moves;
)sql";

absl::Status CopyJobs(Database& database) {
  absl::StatusOr<Statement> old =
      database.Prepare("SELECT ordinal, id, job FROM jobs_of_schema_2 ORDER BY ordinal");
  if (!old.ok()) return old.status();
  for (;;) {
    const absl::StatusOr<bool> row = old->Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    Job job;
    if (!job.ParseFromString(old->Text(2))) {
      return absl::DataLossError(absl::StrCat("the store's record of job ", old->Text(1),
                                              " cannot be read; restore jobs.db from a backup"));
    }
    if (job.owner().empty()) job.set_owner("anonymous");
    absl::Status status = WriteJobRows(database, old->Int(0), job);
    if (!status.ok()) return status;
  }
}

JobState StateOf(const std::string& name) {
  return ParseEnumName<JobState>(name).value_or(training::v1::JOB_STATE_UNSPECIFIED);
}

absl::Status CopyMoves(Database& database) {
  absl::StatusOr<Statement> old = database.Prepare(
      "SELECT job_id, time, from_state, to_state, reason FROM job_moves ORDER BY rowid");
  if (!old.ok()) return old.status();
  absl::StatusOr<Statement> add =
      database.Prepare("INSERT INTO events(job_id, time, event) VALUES(?1, ?2, ?3)");
  if (!add.ok()) return add.status();
  for (;;) {
    const absl::StatusOr<bool> row = old->Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    JobEvent event;
    const std::string time = absl::StrCat(absl::StrReplaceAll(old->Text(1), {{" ", "T"}}), "Z");
    // An unreadable time stays unset, because the state change itself matters more.
    if (!TimeUtil::FromString(time, event.mutable_time())) event.clear_time();
    event.mutable_state_changed()->set_from(StateOf(old->Text(2)));
    event.mutable_state_changed()->set_to(StateOf(old->Text(3)));
    event.mutable_state_changed()->set_reason(old->Text(4));
    absl::Status written = add->Bind(1, old->Text(0))
                               .Bind(2, TimeUtil::ToString(event.time()))
                               .BindBlob(3, event.SerializeAsString())
                               .Run();
    if (!written.ok()) return written;
  }
}

absl::Status MakeSchema3(Database& database) {
  absl::Status status = database.Execute(kSchema3);
  if (status.ok()) status = CopyJobs(database);
  if (status.ok()) status = CopyMoves(database);
  return status.ok() ? database.Execute(kDropSchema2) : status;
}

// Gives old events their kind, owner and state, and moves log lines to a table of their own.
absl::Status ClassifyEvents(Database& database) {
  absl::StatusOr<Statement> old = database.Prepare(
      "SELECT e.sequence, e.job_id, e.event, coalesce(j.owner, '') FROM events e "
      "LEFT JOIN jobs j ON j.id = e.job_id ORDER BY e.sequence");
  if (!old.ok()) return old.status();
  absl::StatusOr<Statement> put = database.Prepare(
      "UPDATE events SET kind = ?2, owner = ?3, state = ?4, event = ?5 WHERE sequence = ?1");
  if (!put.ok()) return put.status();
  std::map<std::string, JobState> states;
  for (;;) {
    const absl::StatusOr<bool> row = old->Step();
    if (!row.ok()) return row.status();
    if (!*row) return database.Execute("DELETE FROM events WHERE kind = 'log_line'");
    JobEvent event;
    // An unreadable event keeps its job, owner and state, but loses its content.
    if (!event.ParseFromString(old->Text(2))) event.Clear();
    event.set_job_id(old->Text(1));
    event.set_owner(old->Text(3));
    JobState& state = states[event.job_id()];
    if (event.has_state_changed()) state = event.state_changed().to();
    event.set_state(state);
    absl::Status status =
        event.has_log_line() ? WriteLogLineRow(database, event) : absl::OkStatus();
    if (status.ok()) {
      status = put->Bind(1, old->Int(0))
                   .Bind(2, EventKind(event))
                   .Bind(3, event.owner())
                   .Bind(4, ShortEnumName(state))
                   .BindBlob(5, event.SerializeAsString())
                   .Run();
    }
    if (!status.ok()) return status;
  }
}

absl::Status MakeSchema4(Database& database) {
  absl::Status status = database.Execute(kSchema4);
  if (status.ok()) status = ClassifyEvents(database);
  return status.ok() ? database.Execute(kIndexes4) : status;
}

// Copies owner and size of each checkpoint from its record.
absl::Status FillCheckpointColumns(Database& database) {
  absl::StatusOr<Statement> old =
      database.Prepare("SELECT rowid, checkpoint FROM checkpoints ORDER BY rowid");
  if (!old.ok()) return old.status();
  absl::StatusOr<Statement> put =
      database.Prepare("UPDATE checkpoints SET owner = ?2, size_bytes = ?3 WHERE rowid = ?1");
  if (!put.ok()) return put.status();
  for (;;) {
    const absl::StatusOr<bool> row = old->Step();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    training::v1::Checkpoint checkpoint;
    // An unreadable record stays as it is and counts as empty; lists leave it out.
    if (!checkpoint.ParseFromString(old->Text(1))) continue;
    absl::Status status = put->Bind(1, old->Int(0))
                              .Bind(2, checkpoint.owner())
                              .Bind(3, checkpoint.size_bytes())
                              .Run();
    if (!status.ok()) return status;
  }
}

absl::Status MakeSchema6(Database& database) {
  absl::Status status = database.Execute(kSchema6);
  if (status.ok()) status = FillCheckpointColumns(database);
  return status.ok() ? database.Execute(kTotals6) : status;
}

// Migrates the schema to `version` from the version before. Version 1 is created.
absl::Status MakeSchema(Database& database, int64_t version) {
  if (version == 1) return database.Execute(kSchema1);
  if (version == 2) return database.Execute(kSchema2);
  if (version == 3) return MakeSchema3(database);
  if (version == 4) return MakeSchema4(database);
  if (version == 5) return database.Execute(kSchema5);
  return version == 6 ? MakeSchema6(database) : database.Execute(kSchema7);
}

// Serializes the message so that it can be parsed. Protobuf also serializes strings that are not
// UTF-8, which it refuses to parse; BoundTexts repairs them.
template <typename Message>
std::string ReadableBytes(const Message& message) {
  std::string bytes = message.SerializeAsString();
  if (Message().ParseFromString(bytes)) return bytes;
  Message readable = message;
  BoundTexts(readable);
  return readable.SerializeAsString();
}

std::string LabelsJson(const Labels& labels) {
  Json json = Json::object();
  for (const auto& [key, value] : labels) json[key] = value;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status WriteLabels(Database& database, int64_t ordinal, const Job& job) {
  absl::StatusOr<Statement> clear = database.Prepare("DELETE FROM job_labels WHERE ordinal = ?1");
  if (!clear.ok()) return clear.status();
  absl::Status status = clear->Bind(1, ordinal).Run();
  if (!status.ok() || job.labels().empty()) return status;
  absl::StatusOr<Statement> put =
      database.Prepare("INSERT INTO job_labels(ordinal, key, value) VALUES(?1, ?2, ?3)");
  if (!put.ok()) return put.status();
  for (const auto& [key, value] : job.labels()) {
    status = put->Bind(1, ordinal).Bind(2, key).Bind(3, value).Run();
    if (!status.ok()) return status;
  }
  return status;
}

// Returns when the job ended, in seconds since 1970. Without an end time, its creation counts.
int64_t EndSeconds(const Job& job) {
  return job.has_end_time() ? job.end_time().seconds() : job.create_time().seconds();
}

}  // namespace

absl::StatusOr<int64_t> ReadSchemaVersion(Database& database) {
  absl::StatusOr<Statement> query = database.Prepare("PRAGMA user_version");
  if (!query.ok()) return query.status();
  const absl::StatusOr<bool> row = query->Step();
  if (!row.ok()) return row.status();
  return query->Int(0);
}

absl::Status BringUpSchema(Database& database) {
  const absl::StatusOr<int64_t> version = ReadSchemaVersion(database);
  if (!version.ok()) return version.status();
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store has schema ", *version, ", this genesisd knows up to ",
                     kSchemaVersion, "; run the newer genesisd, or another --data-dir"));
  }
  // Take the write lock even without a migration, so that a locked store fails at startup.
  absl::Status status = database.Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  for (int64_t next = *version + 1; next <= kSchemaVersion && status.ok(); ++next) {
    status = MakeSchema(database, next);
  }
  if (status.ok() && *version < kSchemaVersion) {
    status = database.Execute(absl::StrCat("PRAGMA user_version = ", kSchemaVersion));
  }
  if (status.ok()) status = database.Execute("COMMIT");
  // Fails only if SQLite has already rolled back.
  if (!status.ok()) database.Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status WriteJobRows(Database& database, int64_t ordinal, const Job& job) {
  absl::StatusOr<Statement> put = database.Prepare(
      "INSERT INTO jobs(ordinal, id, state, reason, owner, priority, request_id, create_time, "
      "end_time) VALUES(?1, ?2, ?3, substr(?4, 1, 200), ?5, ?6, ?7, ?8, ?9) ON CONFLICT(ordinal) "
      "DO UPDATE SET "
      "state = ?3, reason = substr(?4, 1, 200), owner = ?5, priority = ?6, request_id = ?7, "
      "end_time = ?9");
  if (!put.ok()) return put.status();
  put->Bind(1, ordinal)
      .Bind(2, job.id())
      .Bind(3, ShortEnumName(job.state()))
      .Bind(4, job.state_reason())
      .Bind(5, job.owner())
      .Bind(6, int64_t{job.priority()})
      .Bind(8, TimeUtil::ToString(job.create_time()));
  if (job.request_id().empty()) {
    put->BindNull(7);
  } else {
    put->Bind(7, job.request_id());
  }
  if (IsFinal(job.state())) {
    put->Bind(9, EndSeconds(job));
  } else {
    put->BindNull(9);
  }
  absl::Status status = put->Run();
  if (!status.ok()) return status;
  absl::StatusOr<Statement> record = database.Prepare(
      "INSERT INTO job_records(ordinal, job) VALUES(?1, ?2) "
      "ON CONFLICT(ordinal) DO UPDATE SET job = ?2");
  if (!record.ok()) return record.status();
  status = record->Bind(1, ordinal).BindBlob(2, ReadableBytes(job)).Run();
  return status.ok() ? WriteLabels(database, ordinal, job) : status;
}

absl::StatusOr<int64_t> WriteEventRow(Database& database, const JobEvent& event,
                                      const Labels& labels) {
  JobEvent stored = event;
  stored.clear_sequence();
  absl::StatusOr<Statement> add = database.Prepare(
      "INSERT INTO events(job_id, time, event, kind, owner, state, labels) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)");
  if (!add.ok()) return add.status();
  absl::Status status = add->Bind(1, event.job_id())
                            .Bind(2, TimeUtil::ToString(event.time()))
                            .BindBlob(3, ReadableBytes(stored))
                            .Bind(4, EventKind(event))
                            .Bind(5, event.owner())
                            .Bind(6, ShortEnumName(event.state()))
                            .Bind(7, LabelsJson(labels))
                            .Run();
  if (!status.ok()) return status;
  return database.LastInsertId();
}

absl::Status WriteLogLineRow(Database& database, const JobEvent& line) {
  absl::StatusOr<Statement> add =
      database.Prepare("INSERT INTO log_lines(job_id, time, line) VALUES(?1, ?2, ?3)");
  if (!add.ok()) return add.status();
  return add->Bind(1, line.job_id())
      .Bind(2, TimeUtil::ToString(line.time()))
      .Bind(3, line.log_line())
      .Run();
}

}  // namespace genesis
