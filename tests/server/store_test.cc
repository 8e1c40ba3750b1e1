#include <gtest/gtest.h>

#include <filesystem>

#include "server/jobs/event_hub.h"
#include "server/jobs/job_table.h"
#include "server/store/data_dir.h"
#include "server/store/job_store.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::Job;

Job MakeJob(const std::string& id) {
  Job job;
  job.set_id(id);
  job.set_state(training::v1::JOB_STATE_QUEUED);
  job.mutable_create_time()->set_seconds(1'700'000'000);
  return job;
}

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

TEST(DataDir, AFileInItsPlaceIsRefused) {
  TempDir temp;
  const auto dir = DataDir::Acquire("/proc/nowhere");
  EXPECT_EQ(dir.status().code(), absl::StatusCode::kFailedPrecondition) << dir.status();
}

TEST(JobStore, KeepsJobsInOrderOfAcceptanceAcrossOpenings) {
  TempDir temp;
  {
    auto store = JobStore::Open(temp.path());
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Begin().ok());
    for (const char* id : {"zeta", "alpha"}) ASSERT_TRUE((*store)->PutJob(MakeJob(id)).ok());
    Job changed = MakeJob("zeta");
    changed.set_state(training::v1::JOB_STATE_FAILED);
    ASSERT_TRUE((*store)->PutJob(changed).ok());
    ASSERT_TRUE((*store)->Commit().ok());
  }
  auto store = JobStore::Open(temp.path());
  const auto jobs = (*store)->LoadJobs();
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ((*jobs)[0].id(), "zeta");
  EXPECT_EQ((*jobs)[0].state(), training::v1::JOB_STATE_FAILED);
  EXPECT_EQ((*jobs)[1].id(), "alpha");
}

TEST(JobStore, ARollbackLeavesNothing) {
  TempDir temp;
  auto store = JobStore::Open(temp.path());
  ASSERT_TRUE((*store)->Begin().ok());
  ASSERT_TRUE((*store)->PutJob(MakeJob("a")).ok());
  (*store)->Rollback();
  EXPECT_TRUE((*store)->LoadJobs()->empty());
}

TEST(JobStore, AStoreOfTheFirstSchemaIsBroughtUpAndKeepsItsJobs) {
  TempDir temp;
  training::v1::Job job;
  job.set_id("kept");
  {
    const auto store = JobStore::Open(temp.path());
    ASSERT_TRUE((*store)->Begin().ok());
    ASSERT_TRUE((*store)->PutJob(job).ok());
    ASSERT_TRUE((*store)->Commit().ok());
    auto database = Database::Open(temp.path() + "/jobs.db");
    ASSERT_TRUE((*database)->Execute("DROP TABLE baselines; PRAGMA user_version = 1").ok());
  }
  const auto store = JobStore::Open(temp.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->LoadJobs()->at(0).id(), "kept");
  EXPECT_EQ((*store)->FindBaseline("w")->steps_size(), 0);
}

TEST(JobStore, KeepsTheNewestBaselineOfAWorkload) {
  TempDir temp;
  training::v1::LossCurve curve;
  curve.add_steps(1);
  curve.add_losses(0.5);
  {
    const auto store = JobStore::Open(temp.path());
    ASSERT_TRUE((*store)->PutBaseline(std::string("a\0b", 3), "first", curve).ok());
    curve.set_losses(0, 0.25);
    ASSERT_TRUE((*store)->PutBaseline(std::string("a\0b", 3), "second", curve).ok());
  }
  const auto store = JobStore::Open(temp.path());
  EXPECT_EQ((*store)->FindBaseline(std::string("a\0b", 3))->losses(0), 0.25);
  EXPECT_EQ((*store)->FindBaseline(std::string("a\0c", 3))->losses_size(), 0);
}

TEST(JobStore, ANewerSchemaIsRefused) {
  TempDir temp;
  {
    auto database = Database::Open(temp.path() + "/jobs.db");
    ASSERT_TRUE((*database)->Execute("PRAGMA user_version = 7").ok());
  }
  const auto store = JobStore::Open(temp.path());
  EXPECT_EQ(
      store.status().message(),
      "the store has schema 7, this genesisd knows up to 2; run the newer genesisd, or another "
      "--data-dir");
}

TEST(JobStore, AFileThatIsNoDatabaseIsRefused) {
  TempDir temp;
  temp.Write("jobs.db", std::string(8192, 'x'));
  EXPECT_EQ(JobStore::Open(temp.path()).status().code(), absl::StatusCode::kDataLoss);
}

class JobTableTest : public testing::Test {
 protected:
  JobTableTest() : store_(*JobStore::Open(temp_.path())), table_(store_.get(), &hub_) {
    EXPECT_TRUE(table_.Load().ok());
  }

  TempDir temp_;
  std::unique_ptr<JobStore> store_;
  EventHub hub_;
  JobTable table_;
};

TEST_F(JobTableTest, AChangeIsCountedThenShownThenAnnounced) {
  table_.Insert(MakeJob("a"));
  EXPECT_EQ(table_.Snapshot("a"), nullptr);
  bool counted_before = false;
  bool announced_after = false;
  table_.Count([&] { counted_before = table_.Snapshot("a") == nullptr; });
  table_.Announce([&] { announced_after = table_.Snapshot("a") != nullptr; });
  ASSERT_TRUE(table_.Commit().ok());
  EXPECT_TRUE(counted_before);
  EXPECT_TRUE(announced_after);
}

TEST_F(JobTableTest, ARefusedCommitUndoesEveryChangeAndAnnouncesNothing) {
  table_.Insert(MakeJob("a"));
  ASSERT_TRUE(table_.Commit().ok());
  // Another connection holds the store for longer than the busy timeout is worth waiting for.
  auto other = *Database::Open(temp_.path() + "/jobs.db");
  ASSERT_TRUE(other->Execute("DROP TABLE job_moves").ok());
  bool announced = false;
  table_.Move("a", training::v1::JOB_STATE_CANCELLED, "test");
  table_.Insert(MakeJob("b"));
  Checkpoint checkpoint;
  checkpoint.set_id("a-step-1");
  table_.PutCheckpoint(checkpoint);
  table_.Announce([&] { announced = true; });
  EXPECT_FALSE(table_.Commit().ok());
  EXPECT_FALSE(announced);
  EXPECT_EQ(table_.Find("a")->state(), training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(table_.Find("b"), nullptr);
  EXPECT_TRUE(table_.CheckpointsOf("").empty());
  EXPECT_EQ(table_.Snapshot("a")->job.state(), training::v1::JOB_STATE_QUEUED);
}

TEST_F(JobTableTest, ProgressIsShownButNotStored) {
  table_.Insert(MakeJob("a"));
  ASSERT_TRUE(table_.Commit().ok());
  table_.EditVolatile("a")->mutable_progress()->set_step(7);
  ASSERT_TRUE(table_.Commit().ok());
  EXPECT_EQ(table_.Snapshot("a")->job.progress().step(), 7);
  EXPECT_EQ(store_->LoadJobs()->front().progress().step(), 0);
}

TEST_F(JobTableTest, VersionsGrowWithEveryChange) {
  table_.Insert(MakeJob("a"));
  ASSERT_TRUE(table_.Commit().ok());
  const int64_t first = table_.Snapshot("a")->version;
  table_.Edit("a");
  ASSERT_TRUE(table_.Commit().ok());
  EXPECT_GT(table_.Snapshot("a")->version, first);
}

TEST(JobTableDeathTest, AnIllegalMoveEndsTheProgram) {
  TempDir temp;
  auto store = *JobStore::Open(temp.path());
  EventHub hub;
  JobTable table(store.get(), &hub);
  table.Insert(MakeJob("a"));
  EXPECT_DEATH(table.Move("a", training::v1::JOB_STATE_SUCCEEDED, "test"), "");
}

}  // namespace
}  // namespace genesis
