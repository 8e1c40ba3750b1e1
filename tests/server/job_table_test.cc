// Tests of JobTable: the effects of a commit, and what is undone if it fails.
#include "server/ledger/job_table.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "server/ledger/event_hub.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::Job;
using training::v1::JobEvent;

// Records all notifications.
class Listener final : public JobWatcher {
 public:
  void Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents& events) override {
    newest = std::move(snapshot);
    all.insert(all.end(), events.begin(), events.end());
  }
  std::shared_ptr<const JobSnapshot> newest;
  JobEvents all;
};

class JobTableTest : public testing::Test {
 protected:
  JobTableTest() { Reopen(); }

  void Reopen() {
    table_.reset();
    store_.reset();
    store_ = *JobStore::Open(temp_.path());
    table_ = std::make_unique<JobTable>(store_.get(), &hub_);
    ASSERT_TRUE(table_->Load().ok());
  }
  void Commit() { ASSERT_TRUE(table_->Commit().ok()); }
  void InsertEnded(const std::string& id, int64_t end_seconds) {
    Job job = MakeJob(id, training::v1::JOB_STATE_SUCCEEDED);
    job.mutable_end_time()->set_seconds(end_seconds);
    table_->Insert(std::move(job));
  }
  std::shared_ptr<const JobSnapshot> Shown(const std::string& id) {
    return *table_->view().Snapshot(id);
  }
  size_t EventsOf(const std::string& id) {
    const EventQuery query = {.job_id = id, .kinds = {"state_changed", "updated"}};
    return table_->view().EventsAfter(query, 0, 10000, false)->events.size();
  }
  int64_t CountOf(training::v1::JobState state) { return table_->view().CountsByState()[state]; }
  // Makes commits fail until Mend is called.
  void Break() {
    ASSERT_TRUE(store_->database().Execute("ALTER TABLE events RENAME TO hidden").ok());
  }
  void Mend() {
    ASSERT_TRUE(store_->database().Execute("ALTER TABLE hidden RENAME TO events").ok());
  }

  TempDir temp_;
  std::unique_ptr<JobStore> store_;
  EventHub hub_;
  std::unique_ptr<JobTable> table_;
};

TEST_F(JobTableTest, AChangeIsCountedThenShownThenAnnounced) {
  table_->Insert(MakeJob("a"));
  EXPECT_EQ(Shown("a"), nullptr);
  bool counted_before = false;
  bool announced_after = false;
  table_->Count([&] { counted_before = table_->view().InMemory().empty(); });
  table_->Announce([&] { announced_after = table_->view().InMemory().size() == 1; });
  Commit();
  EXPECT_TRUE(counted_before);
  EXPECT_TRUE(announced_after);
}

TEST_F(JobTableTest, ARefusedCommitUndoesEveryChangeAndAnnouncesNothing) {
  table_->Insert(MakeJob("a"));
  InsertEnded("old", 1);
  Commit();
  Break();
  bool announced = false;
  table_->Move("a", training::v1::JOB_STATE_CANCELLED, "test");
  table_->Insert(MakeJob("b"));
  table_->Remove("old", true);
  table_->PutMetadata("k", "v");
  Checkpoint checkpoint;
  checkpoint.set_id("a-step-1");
  checkpoint.set_job_id("a");
  table_->PutCheckpoint(checkpoint);
  table_->Announce([&] { announced = true; });
  EXPECT_FALSE(table_->Commit().ok());
  Mend();
  EXPECT_FALSE(announced);
  EXPECT_EQ(table_->Find("a")->state(), training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(table_->Find("b"), nullptr);
  EXPECT_NE(table_->Find("old"), nullptr);
  EXPECT_TRUE(table_->CheckpointsOf("a").empty());
  EXPECT_EQ(table_->Metadata("k"), std::nullopt);
  EXPECT_EQ(Shown("a")->job.state(), training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(EventsOf("a"), 0U);
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_SUCCEEDED), 1);
  Commit();
  EXPECT_EQ(Shown("b"), nullptr) << "nothing is left over for the next commit";
}

TEST_F(JobTableTest, ProgressIsShownButNotStored) {
  table_->Insert(MakeJob("a"));
  Commit();
  table_->EditVolatile("a")->mutable_progress()->set_step(7);
  Commit();
  EXPECT_EQ(Shown("a")->job.progress().step(), 7);
  EXPECT_EQ(table_->view().List({})->front().job.progress().step(), 7) << "laid over the store";
  EXPECT_EQ((*ReadJob(store_->database(), "a"))->job.progress().step(), 0);
}

TEST_F(JobTableTest, VersionsGrowWithEveryChange) {
  table_->Insert(MakeJob("a"));
  Commit();
  const int64_t first = Shown("a")->version;
  table_->Edit("a");
  Commit();
  EXPECT_GT(Shown("a")->version, first);
}

TEST_F(JobTableTest, AMoveIsAnEventThatWatchersGetWithTheState) {
  table_->Insert(MakeJob("a"));
  Commit();
  const auto listener = std::make_shared<Listener>();
  hub_.Subscribe("a", listener);
  table_->Move("a", training::v1::JOB_STATE_STARTING, "given to worker w1");
  Commit();
  ASSERT_EQ(listener->all.size(), 1U);
  const JobEvent& event = *listener->all[0];
  EXPECT_EQ(event.state_changed().from(), training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(event.state_changed().to(), training::v1::JOB_STATE_STARTING);
  EXPECT_TRUE(event.has_time());
  EXPECT_EQ(event.sequence(), table_->view().LastSequence());
  EXPECT_EQ(listener->newest->job.state(), training::v1::JOB_STATE_STARTING);
  Reopen();
  EXPECT_EQ(table_->view().LastSequence(), event.sequence());
  EXPECT_EQ(EventsOf("a"), 1U);
}

TEST_F(JobTableTest, ALogLineWaitsForTheNextChangeAndCostsNoWriteOfItsOwn) {
  table_->Insert(MakeJob("a"));
  Commit();
  const auto listener = std::make_shared<Listener>();
  hub_.Subscribe("a", listener);
  table_->AddLogLine("a", "one");
  Commit();
  EXPECT_TRUE(table_->view().LogLines("a")->empty());
  EXPECT_TRUE(listener->all.empty()) << "nobody hears of what is not durable";
  EXPECT_LE(table_->NextDue(), absl::Now() + absl::Seconds(1));
  table_->AddLogLine("a", "two");
  table_->Move("a", training::v1::JOB_STATE_STARTING, "test");
  Commit();
  ASSERT_EQ(listener->all.size(), 3U);
  EXPECT_EQ(listener->all[0]->log_line(), "one");
  EXPECT_EQ(listener->all[1]->log_line(), "two");
  EXPECT_EQ(EventsOf("a"), 1U);
  EXPECT_EQ(table_->view().LogLines("a")->size(), 2U);
  EXPECT_EQ(table_->NextDue(), absl::InfiniteFuture());
}

TEST_F(JobTableTest, ManyLogLinesWaitForNoClock) {
  table_->Insert(MakeJob("a"));
  Commit();
  for (int i = 0; i < 257; ++i) table_->AddLogLine("a", "x");
  Commit();
  EXPECT_EQ(table_->view().LogLines("a")->size(), 257U);
}

TEST_F(JobTableTest, LogLinesOfARefusedChangeGoWithItAndOlderOnesStay) {
  table_->Insert(MakeJob("a"));
  Commit();
  table_->AddLogLine("a", "kept");
  Commit();
  Break();
  table_->AddLogLine("a", "undone");
  table_->Move("a", training::v1::JOB_STATE_STARTING, "test");
  EXPECT_FALSE(table_->Commit().ok());
  Mend();
  EXPECT_TRUE(table_->Flush().ok());
  const auto events = *table_->view().LogLines("a");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].log_line(), "kept");
}

TEST_F(JobTableTest, OnlyJobsThatHaveNotEndedAreReadAtStart) {
  for (int i = 0; i < 500; ++i) InsertEnded(absl::StrCat("ended-", i), i);
  table_->Insert(MakeJob("open"));
  Commit();
  Reopen();
  EXPECT_EQ(table_->view().InMemory().size(), 1U);
  EXPECT_EQ(table_->Ids(), std::vector<std::string>{"open"});
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_SUCCEEDED), 500);
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_QUEUED), 1);
  EXPECT_EQ(table_->Find("ended-3")->state(), training::v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Shown("ended-499")->job.id(), "ended-499");
  EXPECT_EQ(table_->Find("ended-500"), nullptr);
}

TEST_F(JobTableTest, EndedJobsLeaveMemoryButForTheNewest) {
  for (int i = 0; i < 300; ++i) {
    const std::string id = absl::StrCat("job-", i);
    table_->Insert(MakeJob(id));
    table_->Move(id, training::v1::JOB_STATE_CANCELLED, "test");
    Commit();
    EXPECT_LE(table_->view().InMemory().size(), 64U);
  }
  // Finding finished jobs does not fill the table either.
  for (int i = 0; i < 300; ++i) {
    EXPECT_NE(table_->Find(absl::StrCat("job-", i)), nullptr);
    if (i % 10 == 0) Commit();
  }
  Commit();
  EXPECT_LE(table_->view().InMemory().size(), 64U);
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_CANCELLED), 300);
}

TEST_F(JobTableTest, AnEndedJobCanBeEdited) {
  for (int i = 0; i < 100; ++i) InsertEnded(absl::StrCat("ended-", i), i);
  Commit();
  Reopen();
  (*table_->Edit("ended-5")->mutable_labels())["team"] = "red";
  Commit();
  Reopen();
  EXPECT_EQ(table_->Find("ended-5")->labels().at("team"), "red");
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_SUCCEEDED), 100);
}

TEST_F(JobTableTest, ARequestIdIsFoundBeforeAndAfterItsCommitAndWhenTheJobHasEnded) {
  Job job = MakeJob("a", training::v1::JOB_STATE_SUCCEEDED);
  job.set_request_id("once");
  table_->Insert(job);
  EXPECT_EQ(table_->FindByRequestId("once")->id(), "a");
  Commit();
  Reopen();
  EXPECT_EQ(table_->FindByRequestId("once")->id(), "a");
  EXPECT_EQ(table_->FindByRequestId("twice"), nullptr);
  EXPECT_EQ(table_->FindByRequestId(""), nullptr);
}

TEST_F(JobTableTest, ARemovedJobIsGoneAtOnceAndItsIdIsFree) {
  std::vector<training::v1::JobState> told;
  table_->OnForgotten([&](training::v1::JobState state) { told.push_back(state); });
  InsertEnded("a", 1);
  table_->AddEvent("a", TextEvent("a", "x"));
  Commit();
  table_->Remove("a", false);
  EXPECT_EQ(table_->Find("a"), nullptr);
  table_->Insert(MakeJob("a"));
  Commit();
  EXPECT_EQ(table_->Find("a")->state(), training::v1::JOB_STATE_QUEUED);
  EXPECT_EQ(told, std::vector<training::v1::JobState>{training::v1::JOB_STATE_SUCCEEDED});
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_SUCCEEDED), 0);
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_QUEUED), 1);
  EXPECT_EQ(EventsOf("a"), 0U);
}

TEST_F(JobTableTest, CheckpointsAreSeenBeforeTheyAreCommitted) {
  Checkpoint checkpoint;
  checkpoint.set_job_id("a");
  for (const char* id : {"a-1", "a-2", "a-3"}) {
    checkpoint.set_id(id);
    table_->PutCheckpoint(checkpoint);
  }
  Commit();
  table_->RemoveCheckpoint("a-1");
  checkpoint.set_id("a-2");
  table_->PutCheckpoint(checkpoint);
  EXPECT_EQ(table_->FindCheckpoint("a-1"), std::nullopt);
  for (int pass = 0; pass < 2; ++pass) {
    const std::vector<Checkpoint> all = table_->CheckpointsOf("a");
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].id(), "a-3");
    EXPECT_EQ(all[1].id(), "a-2") << "written last";
    Commit();
  }
  EXPECT_EQ(table_->view().GetCheckpoint("a-1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(table_->view().GetCheckpoint("a-3").ok());
}

TEST_F(JobTableTest, TheJobThatEndedFirstIsForgottenInTheCommitThatIsOverTheLimit) {
  table_->SetRetention({.jobs = 3, .days = 0});
  int forgotten = 0;
  table_->OnForgotten([&](training::v1::JobState) { ++forgotten; });
  for (int i = 1; i <= 5; ++i) {
    InsertEnded(absl::StrCat("ended-", i), i);
    Commit();
  }
  EXPECT_EQ(forgotten, 2);
  EXPECT_EQ(Shown("ended-2"), nullptr);
  EXPECT_EQ(table_->Find("ended-2"), nullptr);
  EXPECT_NE(Shown("ended-3"), nullptr);
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_SUCCEEDED), 3);
  EXPECT_EQ(table_->NextDue(), absl::InfiniteFuture());
}

TEST_F(JobTableTest, ALowerLimitIsReachedInBoundedSteps) {
  for (int i = 1; i <= 100; ++i) InsertEnded(absl::StrCat("ended-", i), i);
  Commit();
  Reopen();
  table_->SetRetention({.jobs = 10, .days = 0});
  int steps = 0;
  while (table_->NextDue() <= absl::Now()) {
    const int64_t before = CountOf(training::v1::JOB_STATE_SUCCEEDED);
    Commit();
    ASSERT_LE(before - CountOf(training::v1::JOB_STATE_SUCCEEDED), 32);
    ASSERT_LT(++steps, 100);
  }
  EXPECT_EQ(CountOf(training::v1::JOB_STATE_SUCCEEDED), 10);
  EXPECT_EQ(table_->view().List({})->size(), 10U);
}

TEST_F(JobTableTest, JobsThatEndedTooManyDaysAgoAreForgotten) {
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  InsertEnded("old", now - 3 * 86400);
  InsertEnded("new", now - 86400);
  table_->Insert(MakeJob("open"));
  Commit();
  table_->SetRetention({.jobs = 100, .days = 2});
  EXPECT_LE(table_->NextDue(), absl::Now());
  Commit();
  EXPECT_EQ(Shown("old"), nullptr);
  EXPECT_NE(Shown("new"), nullptr);
  EXPECT_NE(Shown("open"), nullptr);
  EXPECT_GT(table_->NextDue(), absl::Now());
}

TEST_F(JobTableTest, MetadataIsKnownBeforeItsCommitAndAfterARestart) {
  table_->PutMetadata("policy", "no");
  EXPECT_EQ(table_->Metadata("policy"), "no");
  Commit();
  Reopen();
  EXPECT_EQ(table_->Metadata("policy"), "no");
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
