// Tests of the data folder and its database: what is stored, and what is refused at the start.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/data_dir.h"
#include "server/store/event_reads.h"
#include "server/store/job_store.h"
#include "server/store/schema.h"
#include "server/store/store_reads.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using training::v1::Job;
using training::v1::JobState;

TEST(DataDir, IsHeldByOneDaemonAtATimeAndNamesTheHolder) {
  TempDir temp;
  auto first = DataDir::Acquire(temp.path() + "/deep/data");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = DataDir::Acquire(temp.path() + "/deep/data");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(second.status().message(),
            "data folder " + temp.path() + "/deep/data is in use by another genesisd (process " +
                std::to_string(getpid()) + "); stop it, or choose another folder with --data-dir");
  first->reset();
  EXPECT_TRUE(DataDir::Acquire(temp.path() + "/deep/data").ok());
}

TEST(DataDir, IsHeldAlsoWhenItsLockFileWasRemoved) {
  TempDir temp;
  const auto first = DataDir::Acquire(temp.path());
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::remove(temp.path() + "/genesisd.lock");
  const auto second = DataDir::Acquire(temp.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
}

TEST(DataDir, IsTakenFromTheCopyThatAKilledDaemonLeavesBehind) {
  const TempDir temp;
  const pid_t daemon = fork();
  if (daemon == 0) {
    const auto held = DataDir::Acquire(temp.path());
    if (fork() == 0) {
      // Acts like a child between fork and exec whose daemon is killed.
      absl::SleepFor(absl::Milliseconds(200));
      _exit(0);
    }
    _exit(held.ok() ? 0 : 1);
  }
  int status = -1;
  waitpid(daemon, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(DataDir::Acquire(temp.path()).ok());
}

TEST(DataDir, AFileInItsPlaceIsRefused) {
  const auto dir = DataDir::Acquire("/proc/nowhere");
  EXPECT_EQ(dir.status().code(), absl::StatusCode::kFailedPrecondition) << dir.status();
}

class JobStoreTest : public testing::Test {
 protected:
  JobStoreTest() { Reopen(); }

  void Reopen() {
    store_.reset();
    absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(temp_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::vector<std::string> OpenIds() {
    const absl::StatusOr<std::vector<StoredJob>> open = ReadOpenJobs(store_->database());
    std::vector<std::string> ids;
    for (const StoredJob& each : *open) ids.push_back(each.job.id());
    return ids;
  }
  int64_t Number(const std::string& sql) {
    absl::StatusOr<Statement> query = store_->database().Prepare(sql);
    EXPECT_TRUE(query.ok()) << query.status();
    EXPECT_TRUE(*query->Step());
    return query->Int(0);
  }
  std::vector<std::string> Texts(const std::string& job_id, int64_t after = 0) {
    const auto page = ReadEvents(store_->database(), {.job_id = job_id}, after, 10000);
    std::vector<std::string> texts;
    for (const training::v1::JobEvent& event : page->events) texts.push_back(event.updated());
    return texts;
  }

  TempDir temp_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(JobStoreTest, KeepsJobsInOrderOfAcceptanceAcrossOpenings) {
  ASSERT_TRUE(store_->Begin().ok());
  ASSERT_TRUE(store_->PutJob(1, MakeJob("zeta")).ok());
  ASSERT_TRUE(store_->PutJob(2, MakeJob("alpha")).ok());
  ASSERT_TRUE(store_->PutJob(3, MakeJob("ended", training::v1::JOB_STATE_FAILED)).ok());
  ASSERT_TRUE(store_->Commit().ok());
  Reopen();
  EXPECT_EQ(OpenIds(), (std::vector<std::string>{"zeta", "alpha"}));
  EXPECT_EQ((*ReadJob(store_->database(), "ended"))->job.state(), training::v1::JOB_STATE_FAILED);
  EXPECT_EQ(*ReadLastOrdinal(store_->database()), 3);
  EXPECT_EQ(*ReadJob(store_->database(), "nobody"), std::nullopt);
}

TEST_F(JobStoreTest, ARollbackLeavesNothing) {
  ASSERT_TRUE(store_->Begin().ok());
  ASSERT_TRUE(store_->PutJob(1, MakeJob("a")).ok());
  store_->Rollback();
  EXPECT_TRUE(OpenIds().empty());
}

TEST_F(JobStoreTest, FindsAJobByItsRequestId) {
  Job job = MakeJob("a");
  job.set_request_id("once");
  ASSERT_TRUE(store_->PutJob(1, job).ok());
  EXPECT_EQ((*ReadJobByRequestId(store_->database(), "once"))->job.id(), "a");
  EXPECT_EQ(*ReadJobByRequestId(store_->database(), "twice"), std::nullopt);
}

TEST_F(JobStoreTest, KeepsTheNewestThousandEventsOfEachKindOfAJob) {
  ASSERT_TRUE(store_->Begin().ok());
  for (int i = 0; i < 1100; ++i) {
    ASSERT_TRUE(store_->AddEvent(TextEvent("a", std::to_string(i))).ok());
  }
  ASSERT_TRUE(store_->AddEvent(TextEvent("b", "of b")).ok());
  training::v1::JobEvent oldest = TextEvent("a", "");
  oldest.mutable_incident()->set_rule("overflow");
  ASSERT_TRUE(store_->AddEvent(oldest).ok());
  for (const char* kind : {"updated", "incident"}) {
    ASSERT_TRUE(store_->PruneEvents("a", kind).ok());
  }
  ASSERT_TRUE(store_->Commit().ok());
  const std::vector<std::string> lines = Texts("a");
  ASSERT_EQ(lines.size(), 1001U);
  EXPECT_EQ(lines.front(), "100");
  EXPECT_EQ(lines[999], "1099");
  EXPECT_EQ(lines[1000], "") << "another kind is counted for itself";
  EXPECT_EQ(Texts("b"), std::vector<std::string>{"of b"});
  EXPECT_EQ(Texts("a", 1098), (std::vector<std::string>{"1098", "1099", ""}));
  const auto dropped = [this](const EventQuery& query) {
    return *ReadDroppedThrough(store_->database(), query);
  };
  EXPECT_EQ(dropped({}), 100);
  EXPECT_EQ(dropped({.job_id = "a"}), 100);
  EXPECT_EQ(dropped({.job_id = "b"}), 0);
  EXPECT_EQ(dropped({.kinds = {"incident", "updated"}}), 100);
  EXPECT_EQ(dropped({.kinds = {"incident"}}), 0) << "no incident is missing";
  EXPECT_EQ(dropped({.owner = "ann"}), 0) << "none of her jobs has lost an event";
  ASSERT_TRUE(store_->PutJob(1, MakeJob("a")).ok());
  EXPECT_EQ(dropped({.owner = "ann"}), 100);
}

TEST_F(JobStoreTest, ASequenceIsNeverGivenTwice) {
  ASSERT_TRUE(store_->PutJob(1, MakeJob("a", training::v1::JOB_STATE_FAILED)).ok());
  const int64_t first = *store_->AddEvent(TextEvent("a", "1"));
  ASSERT_TRUE(store_->RemoveJob("a", false).ok());
  Reopen();
  EXPECT_EQ(*ReadLastSequence(store_->database()), first);
  EXPECT_GT(*store_->AddEvent(TextEvent("b", "2")), first);
}

TEST_F(JobStoreTest, ForgetsThoseThatEndedFirstAndKeepsTheirCheckpoints) {
  ASSERT_TRUE(store_->PutJob(1, MakeJob("runs", training::v1::JOB_STATE_RUNNING)).ok());
  for (int i = 2; i <= 6; ++i) {
    Job job = MakeJob(absl::StrCat("ended-", i), training::v1::JOB_STATE_SUCCEEDED);
    job.mutable_end_time()->set_seconds(100 - i);  // The last accepted job ended first.
    (*job.mutable_labels())["k"] = "v";
    ASSERT_TRUE(store_->PutJob(i, job).ok());
    ASSERT_TRUE(store_->AddEvent(TextEvent(job.id(), "x")).ok());
    training::v1::Checkpoint checkpoint;
    checkpoint.set_id(job.id() + "-step-1");
    checkpoint.set_job_id(job.id());
    ASSERT_TRUE(store_->PutCheckpoint(checkpoint).ok());
  }
  auto forgotten = store_->ForgetEnded(/*most=*/2, /*ended_before=*/0, /*batch=*/100);
  ASSERT_TRUE(forgotten.ok()) << forgotten.status();
  ASSERT_EQ(forgotten->size(), 2U);
  EXPECT_EQ((*forgotten)[0].id, "ended-6");
  EXPECT_EQ((*forgotten)[1].id, "ended-5");
  EXPECT_EQ((*forgotten)[0].state, training::v1::JOB_STATE_SUCCEEDED);
  forgotten = store_->ForgetEnded(/*most=*/0, /*ended_before=*/97, /*batch=*/100);
  ASSERT_EQ(forgotten->size(), 1U) << "those that ended before second 97";
  EXPECT_EQ(forgotten->front().id, "ended-4");
  forgotten = store_->ForgetEnded(/*most=*/100, /*ended_before=*/0, /*batch=*/1);
  EXPECT_EQ(forgotten->size(), 1U) << "no more than one batch";
  EXPECT_EQ(Number("SELECT count(*) FROM jobs"), 2);
  EXPECT_EQ(Number("SELECT count(*) FROM job_records"), 2);
  EXPECT_EQ(Number("SELECT count(*) FROM job_labels"), 1);
  EXPECT_EQ(Number("SELECT count(*) FROM events"), 1);
  EXPECT_EQ(ReadCheckpoints(store_->database(), "", 0, 100)->size(), 5U);
}

TEST_F(JobStoreTest, RemovesCheckpointsWithTheirJobOnlyWhenAsked) {
  training::v1::Checkpoint checkpoint;
  checkpoint.set_owner("ann");
  checkpoint.set_size_bytes(10);
  for (int i = 1; i <= 2; ++i) {
    const std::string id = absl::StrCat("job-", i);
    ASSERT_TRUE(store_->PutJob(i, MakeJob(id, training::v1::JOB_STATE_FAILED)).ok());
    checkpoint.set_id(id + "-step-1");
    checkpoint.set_job_id(id);
    ASSERT_TRUE(store_->PutCheckpoint(checkpoint).ok());
  }
  ASSERT_TRUE(store_->RemoveJob("job-1", /*with_checkpoints=*/true).ok());
  ASSERT_TRUE(store_->RemoveJob("job-2", /*with_checkpoints=*/false).ok());
  EXPECT_EQ(*ReadCheckpoint(store_->database(), "job-1-step-1"), std::nullopt);
  EXPECT_TRUE(ReadCheckpoint(store_->database(), "job-2-step-1")->has_value());
  EXPECT_EQ(*ReadCheckpointBytes(store_->database(), "ann"), 10);
}

TEST_F(JobStoreTest, ACheckpointThatIsWrittenAgainIsTheNewest) {
  training::v1::Checkpoint checkpoint;
  checkpoint.set_job_id("a");
  checkpoint.set_owner("ann");
  checkpoint.set_size_bytes(10);
  for (const char* id : {"one", "two", "one"}) {
    checkpoint.set_id(id);
    ASSERT_TRUE(store_->PutCheckpoint(checkpoint).ok());
  }
  EXPECT_EQ(*ReadCheckpointBytes(store_->database(), "ann"), 20);
  const auto listed = *ReadCheckpoints(store_->database(), "a", 0, 10);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].checkpoint.id(), "one");
  const auto rest = *ReadCheckpoints(store_->database(), "a", listed[0].place, 10);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].checkpoint.id(), "two");
}

TEST_F(JobStoreTest, RemembersMetadataWithEveryByte) {
  const std::string value("a\0b\xff", 4);
  ASSERT_TRUE(store_->PutMetadata("policy", "first").ok());
  ASSERT_TRUE(store_->PutMetadata("policy", value).ok());
  Reopen();
  EXPECT_EQ(*ReadMetadata(store_->database(), "policy"), value);
  EXPECT_EQ(*ReadMetadata(store_->database(), "other"), std::nullopt);
}

TEST_F(JobStoreTest, KeepsTheNewestBaselineOfAWorkload) {
  training::v1::LossCurve curve;
  curve.add_steps(1);
  curve.add_losses(0.5);
  ASSERT_TRUE(store_->PutBaseline(std::string("a\0b", 3), "first", curve).ok());
  curve.set_losses(0, 0.25);
  ASSERT_TRUE(store_->PutBaseline(std::string("a\0b", 3), "second", curve).ok());
  Reopen();
  EXPECT_EQ(store_->FindBaseline(std::string("a\0b", 3))->losses(0), 0.25);
  EXPECT_EQ(store_->FindBaseline(std::string("a\0c", 3))->losses_size(), 0);
}

TEST_F(JobStoreTest, ReadersSeeWhatIsCommittedWhileTheWriterWrites) {
  ASSERT_TRUE(store_->PutJob(1, MakeJob("a")).ok());
  ASSERT_TRUE(store_->Begin().ok());
  ASSERT_TRUE(store_->PutJob(2, MakeJob("b")).ok());
  const auto lease = store_->readers().Borrow();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE(ReadJob(**lease, "a")->has_value());
  EXPECT_EQ(*ReadJob(**lease, "b"), std::nullopt);
  ASSERT_TRUE(store_->Commit().ok());
  EXPECT_TRUE(ReadJob(**lease, "b")->has_value());
  EXPECT_EQ((**lease).Execute("DELETE FROM jobs").code(), absl::StatusCode::kFailedPrecondition);
}

absl::Status OpenStatus(const std::string& dir) {
  return JobStore::Open(dir, {.wait = absl::Milliseconds(50)}).status();
}

TEST(JobStoreRefusal, OfANewerSchema) {
  TempDir temp;
  ASSERT_TRUE((*Database::Open(temp.path() + "/jobs.db"))->Execute("PRAGMA user_version = 8").ok());
  EXPECT_EQ(OpenStatus(temp.path()).message(),
            "the store has schema 8, this genesisd knows up to 7; run the newer genesisd, or "
            "another --data-dir");
}

TEST(JobStoreRefusal, OfAFileThatIsNoDatabase) {
  TempDir temp;
  temp.Write("jobs.db", std::string(8192, 'x'));
  const absl::Status status = OpenStatus(temp.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("restore it from the newest file in backups"));
}

TEST(JobStoreRefusal, OfAnEmptyFile) {
  TempDir temp;
  temp.Write("jobs.db", "");
  const absl::Status status = OpenStatus(temp.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is empty (0 bytes)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("move it away to begin anew"));
  std::filesystem::remove(temp.path() + "/jobs.db");
  temp.Write("jobs.db.new", "left over by a daemon that was killed while it made the store");
  EXPECT_TRUE(OpenStatus(temp.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(temp.path() + "/jobs.db.new"));
}

// The record was written by an earlier version or corrupted by the disk.
TEST(JobStoreRefusal, OfNoOtherRecordThanTheOneThatCannotBeRead) {
  TempDir temp;
  FillWithEnded(temp.path(), 3);
  {
    auto database = *Database::Open(temp.path() + "/jobs.db");
    ASSERT_TRUE(
        database->Execute("UPDATE job_records SET job = x'0a02c328' WHERE ordinal = 2").ok());
  }
  const auto store = *JobStore::Open(temp.path());
  const auto jobs = ReadJobs(store->database(), {});
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 3U);
  EXPECT_EQ((*jobs)[1].job.state(), training::v1::JOB_STATE_FAILED);
  EXPECT_THAT((*jobs)[1].job.state_reason(), HasSubstr("record of this job cannot be read"));
  EXPECT_FALSE((*jobs)[1].job.id().empty());
  EXPECT_TRUE(ReadOpenJobs(store->database()).ok());
}

TEST(JobStoreRefusal, OfADamagedPage) {
  TempDir temp;
  FillWithEnded(temp.path(), 200);
  {
    std::fstream file(temp.path() + "/jobs.db", std::ios::in | std::ios::out | std::ios::binary);
    for (int page = 60; page < 80; ++page) {
      file.seekp(page * 4096);
      file << std::string(64, '\x7f');
    }
  }
  const absl::Status status = OpenStatus(temp.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is damaged"));
}

// Only the full check finds this fault: an index that differs from its rows.
TEST(JobStoreRefusal, OfAnIndexThatDisagreesWhenTheFullCheckIsAskedFor) {
  TempDir temp;
  FillWithEnded(temp.path(), 20);
  {
    auto database = *Database::Open(temp.path() + "/jobs.db");
    // Makes the entries of the index be read as those of another column.
    ASSERT_TRUE(database
                    ->Execute("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = "
                              "'CREATE INDEX events_by_job ON events(time)' "
                              "WHERE name = 'events_by_job'")
                    .ok());
  }
  EXPECT_TRUE(JobStore::Open(temp.path()).ok()) << "the quick check does not compare them";
  const absl::Status status =
      JobStore::Open(temp.path(), {.check = Database::Check::kFull}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

TEST(JobStoreRefusal, OfAStoreThatAnotherProcessHolds) {
  TempDir temp;
  ASSERT_TRUE(OpenStatus(temp.path()).ok());
  auto other = *Database::Open(temp.path() + "/jobs.db");
  ASSERT_TRUE(other->Execute("BEGIN EXCLUSIVE").ok());
  const absl::Status status = OpenStatus(temp.path());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another process holds it"));
}

TEST(JobStoreRefusal, OfAStoreThatMayNotBeWritten) {
  TempDir temp;
  ASSERT_TRUE(OpenStatus(temp.path()).ok());
  chmod(temp.path().c_str(), 0755);
  chmod((temp.path() + "/jobs.db").c_str(), 0444);
  // Root may write to any file, so the test drops its privileges.
  const bool is_root = geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  if (is_root) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const absl::Status status = OpenStatus(temp.path());
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("mend its owner and permissions"));
}

}  // namespace
}  // namespace genesis
