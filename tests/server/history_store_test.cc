#include "server/store/history_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/timestamp.h"
#include "metrics/metrics.h"
#include "server/telemetry/history_recorder.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::HistoryRow;

HistoryRow MakeRow(const std::string& job_id, absl::Time time, int64_t step = 10) {
  HistoryRow row;
  *row.mutable_time() = ToTimestamp(time);
  row.set_job_id(job_id);
  row.set_step(step);
  row.set_training_steps(step);
  row.set_mode(training::v1::PRECISION_MODE_MIXED_FP16);
  row.set_loss(0.125);
  row.set_state(training::v1::JOB_STATE_RUNNING);
  return row;
}

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(1763760000 + seconds); }

std::vector<std::string> Ids(const absl::StatusOr<std::vector<HistoryStore::Row>>& rows) {
  std::vector<std::string> ids;
  if (!rows.ok()) return {std::string(rows.status().message())};
  for (const HistoryStore::Row& each : *rows) ids.push_back(each.row.job_id());
  return ids;
}

class HistoryStoreTest : public testing::Test {
 protected:
  std::string path() const { return temp_.path() + "/metrics.db"; }
  // Returns the first column of the first row, read on a separate connection like sqlite3's.
  std::string Ask(const std::string& sql) const {
    Database::Options options;
    options.access = Database::Access::kReadOnly;
    auto database = Database::Open(path(), options);
    EXPECT_TRUE(database.ok()) << database.status();
    auto statement = (*database)->Prepare(sql);
    EXPECT_TRUE(statement.ok()) << statement.status();
    return *statement->Step() ? statement->Text(0) : "no row";
  }

  TempDir temp_;
};

TEST_F(HistoryStoreTest, KeepsEveryFigureAndLeavesWhatWasNotMeasuredUnset) {
  HistoryStore store(path());
  HistoryRow full = MakeRow("a", At(0));
  full.set_baseline_loss(0.25);
  full.set_loss_scale(65536);
  full.set_fp16_steps(8);
  full.set_overflow_steps(2);
  full.set_overflow_rate(0.25);
  full.set_fp16_enabled(true);
  full.set_memory_allocated_bytes(int64_t{5} << 30);
  full.set_samples_per_second(1234.5);
  full.set_divergence_ratio(-0.03);
  full.set_held_out_loss(0.5);
  full.set_divergences(3);
  HistoryRow bare;
  *bare.mutable_time() = ToTimestamp(At(1));
  bare.set_job_id("b");
  bare.set_state(training::v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(store.Append({full, bare}).ok());
  const auto rows = store.Read({});
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].row.DebugString(), full.DebugString());
  EXPECT_EQ((*rows)[1].row.DebugString(), bare.DebugString());
  EXPECT_EQ(Ask("SELECT count(*) FROM fp16_stats WHERE loss IS NULL AND mode IS NULL AND "
                "memory_allocated_bytes IS NULL AND overflow_rate IS NULL AND divergences IS NULL"),
            "1");
}

TEST_F(HistoryStoreTest, TakesTheTableOfAnEarlierVersion) {
  {
    auto database = Database::Open(path());
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE(
        (*database)
            ->Execute("CREATE TABLE fp16_stats(timestamp TEXT NOT NULL, job_id TEXT NOT NULL, "
                      "step INTEGER NOT NULL, mode TEXT, loss REAL, baseline_loss REAL, "
                      "loss_scale REAL, training_steps INTEGER NOT NULL, "
                      "fp16_steps INTEGER NOT NULL, overflow_steps INTEGER NOT NULL, "
                      "overflow_rate REAL, fp16_enabled INTEGER NOT NULL, "
                      "memory_allocated_bytes INTEGER, samples_per_second REAL, "
                      "state TEXT NOT NULL); INSERT INTO fp16_stats VALUES("
                      "'2026-01-02 03:04:05', 'old', 7, 'FP32', 0.5, NULL, NULL, 7, 0, 0, "
                      "NULL, 0, NULL, 10.5, 'RUNNING'); PRAGMA user_version = 1")
            .ok());
  }
  HistoryStore store(path());
  HistoryRow row = MakeRow("new", absl::Now());
  row.set_held_out_loss(0.25);
  ASSERT_TRUE(store.Append({row}).ok());
  const auto rows = store.Read({});
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].row.job_id(), "old");
  EXPECT_FALSE((*rows)[0].row.has_held_out_loss());
  EXPECT_EQ((*rows)[1].row.held_out_loss(), 0.25);
}

TEST_F(HistoryStoreTest, TakesTheTableOfTheVersionBeforeThis) {
  {
    HistoryStore store(path());
    ASSERT_TRUE(store.Append({MakeRow("old", At(0))}).ok());
  }
  {
    auto database = Database::Open(path());
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE((*database)
                    ->Execute("ALTER TABLE fp16_stats DROP COLUMN divergences; "
                              "PRAGMA user_version = 2")
                    .ok());
  }
  HistoryStore store(path());
  HistoryRow row = MakeRow("new", At(1));
  row.set_divergences(0);
  ASSERT_TRUE(store.Append({row}).ok());
  const auto rows = store.Read({});
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_FALSE((*rows)[0].row.has_divergences());
  EXPECT_TRUE((*rows)[1].row.has_divergences());
}

TEST_F(HistoryStoreTest, TimestampsCompareWithSqlitesOwn) {
  HistoryStore store(path());
  ASSERT_TRUE(store
                  .Append({MakeRow("old", absl::Now() - absl::Hours(25)),
                           MakeRow("new", absl::Now() - absl::Hours(23))})
                  .ok());
  EXPECT_EQ(Ask("SELECT group_concat(job_id) FROM fp16_stats WHERE timestamp > "
                "datetime('now', '-24 hours')"),
            "new");
}

TEST_F(HistoryStoreTest, PagesGoOnWhereTheyEndedThoughRowsAreOfOneTime) {
  HistoryStore store(path());
  ASSERT_TRUE(store
                  .Append({MakeRow("c", At(5)), MakeRow("a", At(1)), MakeRow("b", At(1)),
                           MakeRow("m", At(1) + absl::Milliseconds(5)), MakeRow("d", At(5))})
                  .ok());
  std::vector<std::string> seen;
  HistoryStore::Query query;
  query.limit = 1;
  for (auto page = store.Read(query); page.ok() && !page->empty(); page = store.Read(query)) {
    seen.push_back(page->front().row.job_id());
    query.after = page->front().place;
    ASSERT_LE(seen.size(), 5u);
  }
  EXPECT_THAT(seen, ElementsAre("a", "b", "m", "c", "d"));
  EXPECT_THAT(Ids(store.Read({.since = At(1) + absl::Milliseconds(1)})),
              ElementsAre("m", "c", "d"));
  EXPECT_THAT(Ids(store.Read({.since = At(5)})), ElementsAre("c", "d"));
  EXPECT_THAT(Ids(store.Read({.job_id = "b"})), ElementsAre("b"));
  EXPECT_THAT(Ids(store.ReadNewest(At(0), 3)), ElementsAre("m", "c", "d"));
}

TEST_F(HistoryStoreTest, ForgetsOldRowsPieceByPiece) {
  HistoryStore store(path());
  std::vector<HistoryRow> rows;
  for (int i = 0; i < 5001; ++i) rows.push_back(MakeRow("old", At(0)));
  rows.push_back(MakeRow("new", At(100)));
  ASSERT_TRUE(store.Append(rows).ok());
  EXPECT_TRUE(*store.Forget(At(50)));
  EXPECT_FALSE(*store.Forget(At(50)));
  EXPECT_THAT(Ids(store.Read({})), ElementsAre("new"));
}

TEST_F(HistoryStoreTest, ALossThatIsNoNumberIsNull) {
  HistoryStore store(path());
  HistoryRow row = MakeRow("a", At(0));
  row.set_loss(std::numeric_limits<double>::quiet_NaN());
  ASSERT_TRUE(store.Append({row}).ok());
  EXPECT_FALSE((*store.Read({}))[0].row.has_loss());
}

TEST_F(HistoryStoreTest, ADamagedFileIsPutAsideAndTheHistoryBeginsAnew) {
  std::ofstream(path()) << std::string(8192, 'x');
  HistoryStore store(path());
  ASSERT_TRUE(store.Append({MakeRow("a", At(0))}).ok());
  EXPECT_THAT(Ids(store.Read({})), ElementsAre("a"));
  int aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp_.path())) {
    aside += entry.path().filename().string().starts_with("metrics.db.damaged-") ? 1 : 0;
  }
  EXPECT_EQ(aside, 1);
}

TEST_F(HistoryStoreTest, AFileOfANewerDaemonIsLeftAlone) {
  {
    auto database = Database::Open(path());
    ASSERT_TRUE((*database)->Execute("CREATE TABLE t(x); PRAGMA user_version = 4").ok());
  }
  HistoryStore store(path());
  const absl::Status status = store.Append({MakeRow("a", At(0))});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("has schema 4; this daemon knows 3"));
}

TEST_F(HistoryStoreTest, ReadingWithoutAFileSaysThatThereIsNone) {
  HistoryStore store(temp_.path() + "/absent/metrics.db");
  const auto rows = store.Read({});
  EXPECT_TRUE(absl::IsUnavailable(rows.status()));
  EXPECT_THAT(rows.status().message(), HasSubstr("the history cannot be read"));
}

// Waits until `holds` returns true.
template <typename Predicate>
void Await(const char* what, Predicate holds) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!holds()) {
    ASSERT_LT(absl::Now(), deadline) << "waited for " << what;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST_F(HistoryStoreTest, TheRecorderSamplesAtItsIntervalAndWritesEndsAtOnce) {
  HistoryStore store(path());
  Metrics metrics("stable", "1.2.3");
  HistoryRecorder recorder({.interval = absl::Milliseconds(20)}, &store, &metrics,
                           [] { return std::vector<HistoryRow>{MakeRow("sampled", absl::Now())}; });
  recorder.Start();
  recorder.Note(MakeRow("ended", absl::Now()));
  Await("three rows", [&] { return Ids(store.Read({})).size() >= 3; });
  recorder.Stop();
  EXPECT_THAT(Ids(store.Read({})), testing::Contains("ended"));
  EXPECT_THAT(Ids(store.Read({})), testing::Contains("sampled"));
}

TEST_F(HistoryStoreTest, WhatCouldNotBeWrittenIsWrittenWhenItCanBe) {
  const std::string folder = temp_.path() + "/later";
  HistoryStore store(folder + "/metrics.db");
  Metrics metrics("stable", "1.2.3");
  HistoryRecorder recorder({.interval = absl::Hours(1), .retry = absl::Milliseconds(10)}, &store,
                           &metrics, [] { return std::vector<HistoryRow>(); });
  recorder.Start();
  recorder.Note(MakeRow("kept", absl::Now()));
  EXPECT_FALSE(store.Read({}).ok());
  std::filesystem::create_directory(folder);
  Await("the row", [&] { return Ids(store.Read({})) == std::vector<std::string>{"kept"}; });
  recorder.Stop();
  EXPECT_THAT(metrics.RenderText(),
              HasSubstr("genesis_history_rows_lost_total{deployment=\"stable\"} 0"));
}

TEST_F(HistoryStoreTest, RowsThatNeverCouldBeWrittenAreBoundedAndCounted) {
  HistoryStore store(temp_.path() + "/never/metrics.db");
  Metrics metrics("stable", "1.2.3");
  HistoryRecorder recorder({.interval = absl::Hours(1), .retry = absl::Hours(1)}, &store, &metrics,
                           [] { return std::vector<HistoryRow>(); });
  recorder.Start();
  for (int i = 0; i < 10007; ++i) recorder.Note(MakeRow("lost", absl::Now()));
  recorder.Stop();
  EXPECT_THAT(metrics.RenderText(),
              HasSubstr("genesis_history_rows_lost_total{deployment=\"stable\"} 10007"));
}

}  // namespace
}  // namespace genesis
