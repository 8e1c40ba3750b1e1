// Tests that stores of earlier versions, created by those versions' SQL, migrate without loss.
#include "server/store/schema.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/store/event_reads.h"
#include "server/store/job_store.h"
#include "server/store/store_reads.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using training::v1::Job;

// The schema that genesisd 0.1.0 created.
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
PRAGMA user_version = 1;
)sql";

constexpr char kSchema2[] = R"sql(
CREATE TABLE baselines(
  workload BLOB PRIMARY KEY,
  job_id TEXT NOT NULL,
  time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  curve BLOB NOT NULL
) STRICT;
PRAGMA user_version = 2;
)sql";

constexpr char kDropSchema6[] = R"sql(
DROP TABLE sweeps;
DROP TABLE sweep_trials;
DROP TRIGGER checkpoint_inserted;
DROP TRIGGER checkpoint_deleted;
DROP TABLE checkpoint_bytes;
ALTER TABLE checkpoints DROP COLUMN owner;
ALTER TABLE checkpoints DROP COLUMN size_bytes;
ALTER TABLE events DROP COLUMN labels;
DROP TABLE dropped_events;
CREATE TABLE dropped_events(job_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL) STRICT, WITHOUT ROWID;
)sql";

class SchemaTest : public testing::Test {
 protected:
  void MakeOld(int version) {
    auto database = *Database::Open(temp_.path() + "/jobs.db");
    ASSERT_TRUE(database->Execute(kSchema1).ok());
    if (version == 2) {
      ASSERT_TRUE(database->Execute(kSchema2).ok());
    }
    Put(*database, 1, MakeJob("ended", training::v1::JOB_STATE_SUCCEEDED));
    Put(*database, 2, MakeJob("queued"));
    ASSERT_TRUE(database
                    ->Execute("INSERT INTO job_moves(job_id, time, from_state, to_state, reason) "
                              "VALUES('ended', '2026-01-02 03:04:05.678', 'RUNNING', 'SUCCEEDED', "
                              "'training complete')")
                    .ok());
    absl::StatusOr<Statement> put = database->Prepare(
        "INSERT INTO checkpoints VALUES('ended-step-9', 'ended', 9, '/c/9.pt', ?1)");
    training::v1::Checkpoint checkpoint;
    checkpoint.set_id("ended-step-9");
    checkpoint.set_job_id("ended");
    ASSERT_TRUE(put->BindBlob(1, checkpoint.SerializeAsString()).Run().ok());
  }

  static void Put(Database& database, int64_t ordinal, Job job) {
    job.clear_owner();  // Version 1 had no owners.
    absl::StatusOr<Statement> put = database.Prepare(
        "INSERT INTO jobs VALUES(?1, ?2, ?3, 'reason', '2026-01-02T03:04:05Z', ?4)");
    ASSERT_TRUE(put.ok()) << put.status();
    const bool ended = job.state() == training::v1::JOB_STATE_SUCCEEDED;
    ASSERT_TRUE(put->Bind(1, job.id())
                    .Bind(2, ordinal)
                    .Bind(3, ended ? "SUCCEEDED" : "QUEUED")
                    .BindBlob(4, job.SerializeAsString())
                    .Run()
                    .ok());
  }

  void ExpectAllKept() {
    const auto store = JobStore::Open(temp_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    Database& database = (*store)->database();
    EXPECT_EQ(*ReadSchemaVersion(database), 7);
    const auto open = *ReadOpenJobs(database);
    ASSERT_EQ(open.size(), 1U);
    EXPECT_EQ(open[0].job.id(), "queued");
    EXPECT_EQ(open[0].ordinal, 2);
    const auto ended = *ReadJob(database, "ended");
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->ordinal, 1);
    EXPECT_EQ(ended->job.owner(), "anonymous");
    const auto events = ReadEvents(database, {.job_id = "ended"}, 0, 10)->events;
    ASSERT_EQ(events.size(), 1U);
    EXPECT_GE(events[0].sequence(), 1);
    EXPECT_EQ(events[0].time().seconds(), 1767323045);
    EXPECT_EQ(events[0].time().nanos(), 678'000'000);
    EXPECT_EQ(events[0].state_changed().from(), training::v1::JOB_STATE_RUNNING);
    EXPECT_EQ(events[0].state_changed().to(), training::v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(events[0].state_changed().reason(), "training complete");
    EXPECT_TRUE(ReadCheckpoint(database, "ended-step-9")->has_value());
    EXPECT_EQ((*store)->FindBaseline("w")->steps_size(), 0);
  }

  TempDir temp_;
};

TEST_F(SchemaTest, TheFirstSchemaIsBroughtUp) {
  MakeOld(1);
  ExpectAllKept();
}

TEST_F(SchemaTest, TheSecondSchemaIsBroughtUpAndStaysSo) {
  MakeOld(2);
  ExpectAllKept();
  ExpectAllKept();
}

// In schema 3, log lines were events.
TEST_F(SchemaTest, EventsOfTheThirdSchemaGetTheirKindsAndLogLinesATable) {
  ASSERT_TRUE(JobStore::Open(temp_.path()).ok());
  {
    const auto database = *Database::Open(temp_.path() + "/jobs.db", {});
    ASSERT_TRUE(
        database
            ->Execute(absl::StrCat(kDropSchema6,
                                   "DROP TABLE webhook_endpoints; DROP TABLE webhook_deliveries;"
                                   "DROP TABLE log_lines; DROP TABLE dropped_events;"
                                   "DROP INDEX events_by_kind; DROP INDEX events_of_deletions;"
                                   "ALTER TABLE events DROP COLUMN kind;"
                                   "ALTER TABLE events DROP COLUMN owner;"
                                   "ALTER TABLE events DROP COLUMN state; PRAGMA user_version = 3"))
            .ok());
    Job job = MakeJob("a", training::v1::JOB_STATE_FAILED);
    (*job.mutable_labels())["team"] = "red";
    ASSERT_TRUE(WriteJobRows(*database, 1, job).ok());
    std::vector<training::v1::JobEvent> events(4);
    events[0].mutable_state_changed()->set_to(training::v1::JOB_STATE_QUEUED);
    events[1].set_updated("labels");
    events[2].mutable_state_changed()->set_to(training::v1::JOB_STATE_FAILED);
    events[3].set_log_line("the last words");
    for (training::v1::JobEvent& event : events) {
      event.mutable_time()->set_seconds(1'700'000'000);
      absl::StatusOr<Statement> put =
          database->Prepare("INSERT INTO events(job_id, time, event) VALUES('a', '', ?1)");
      ASSERT_TRUE(put->BindBlob(1, event.SerializeAsString()).Run().ok());
    }
  }
  const auto store = *JobStore::Open(temp_.path());
  Database& database = store->database();
  EXPECT_EQ(*ReadSchemaVersion(database), 7);
  EXPECT_EQ(*ReadLastSequence(database), 4) << "a number is never given twice";
  const std::vector<training::v1::JobEvent> events = ReadEvents(database, {}, 0, 10)->events;
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1].sequence(), 2);
  EXPECT_EQ(events[1].job_id(), "a");
  EXPECT_EQ(events[1].owner(), "ann");
  EXPECT_EQ(events[1].state(), training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(events[2].state(), training::v1::JOB_STATE_FAILED);
  EXPECT_EQ(ReadEvents(database, {.kinds = {"updated"}}, 0, 10)->events.size(), 1U);
  EXPECT_EQ(ReadEvents(database, {.labels = {{"team", "red"}}}, 0, 10)->events.size(), 3U);
  const std::vector<training::v1::JobEvent> lines = *ReadLogLines(database, "a");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].log_line(), "the last words");
  EXPECT_EQ(lines[0].time().seconds(), 1'700'000'000);
}

TEST_F(SchemaTest, CheckpointsOfTheFifthSchemaAreCountedForTheirOwners) {
  ASSERT_TRUE(JobStore::Open(temp_.path()).ok());
  {
    const auto database = *Database::Open(temp_.path() + "/jobs.db");
    ASSERT_TRUE(database->Execute(absl::StrCat(kDropSchema6, "PRAGMA user_version = 5")).ok());
    absl::StatusOr<Statement> put =
        database->Prepare("INSERT INTO checkpoints VALUES(?1, 'job', 1, '/c', ?2)");
    training::v1::Checkpoint checkpoint;
    const std::vector<std::pair<std::string, int>> sizes = {
        {"ann", 5}, {"ann", 7}, {"bob", 100}, {"", 9}};
    for (const auto& [owner, bytes] : sizes) {
      checkpoint.set_owner(owner);
      checkpoint.set_size_bytes(bytes);
      ASSERT_TRUE(put->Bind(1, absl::StrCat(owner, bytes))
                      .BindBlob(2, checkpoint.SerializeAsString())
                      .Run()
                      .ok());
    }
    ASSERT_TRUE(put->Bind(1, "unreadable").BindBlob(2, "\xff").Run().ok());
  }
  const auto store = *JobStore::Open(temp_.path());
  EXPECT_EQ(*ReadCheckpointBytes(store->database(), "ann"), 12);
  EXPECT_EQ(*ReadCheckpointBytes(store->database(), "bob"), 100);
  EXPECT_EQ(*ReadCheckpointBytes(store->database(), "eve"), 0);
  ASSERT_TRUE(store->RemoveCheckpoint("ann7").ok());
  EXPECT_EQ(*ReadCheckpointBytes(store->database(), "ann"), 5);
}

TEST_F(SchemaTest, ARecordThatCannotBeReadStopsItAndChangesNothing) {
  MakeOld(2);
  {
    auto database = *Database::Open(temp_.path() + "/jobs.db");
    ASSERT_TRUE(database->Execute("UPDATE jobs SET job = x'ffff' WHERE id = 'queued'").ok());
  }
  const absl::Status status = JobStore::Open(temp_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_NE(status.message().find("the store's record of job queued cannot be read"),
            std::string::npos)
      << status;
  auto database = *Database::Open(temp_.path() + "/jobs.db");
  EXPECT_EQ(*ReadSchemaVersion(*database), 2);
  EXPECT_TRUE(database->Execute("SELECT count(*) FROM job_moves").ok());
}

}  // namespace
}  // namespace genesis
