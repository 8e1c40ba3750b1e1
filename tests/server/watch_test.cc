// Tests of events and cursors in WatchJob, and of lists through gRPC, on a real daemon.
#include <gmock/gmock.h>

#include <filesystem>

#include "server/ledger/job_table.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/jobs_for_test.h"

namespace genesis {
namespace {

using testing::HasSubstr;

class WatchTest : public DaemonTest {
 protected:
  // Returns all messages of a watch from `cursor` to its end.
  std::vector<WatchJobResponse> Watch(const std::string& id, int64_t cursor,
                                      grpc::Status* status = nullptr) {
    grpc::ClientContext context;
    WatchJobRequest request;
    request.set_job_id(id);
    request.set_cursor(cursor);
    const auto reader = stub_->WatchJob(&context, request);
    std::vector<WatchJobResponse> updates;
    while (reader->Read(&updates.emplace_back())) {
    }
    updates.pop_back();
    const grpc::Status ended = reader->Finish();
    if (status != nullptr) {
      *status = ended;
    } else {
      EXPECT_TRUE(ended.ok()) << ended.error_message();
    }
    return updates;
  }
  static std::vector<JobEvent> EventsIn(const std::vector<WatchJobResponse>& updates) {
    std::vector<JobEvent> events;
    for (const WatchJobResponse& update : updates) {
      events.insert(events.end(), update.events().begin(), update.events().end());
    }
    return events;
  }
  static std::vector<JobState> StatesIn(const std::vector<JobEvent>& events) {
    std::vector<JobState> states;
    for (const JobEvent& event : events) {
      if (event.has_state_changed()) states.push_back(event.state_changed().to());
    }
    return states;
  }
  // Starts a daemon with a store that `fill` has filled.
  template <typename Fill>
  void Restart(Fill fill) {
    daemon_.reset();
    fill();
    StartDaemon(MakeSettings(temp_.path()));
  }
  ListJobsResponse List(const ListJobsRequest& request) {
    grpc::ClientContext context;
    ListJobsResponse response;
    const grpc::Status status = stub_->ListJobs(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
};

const std::vector<JobState> kWholeLife = {JOB_STATE_QUEUED, JOB_STATE_STARTING, JOB_STATE_RUNNING,
                                          JOB_STATE_SUCCEEDED};

TEST_F(WatchTest, AWatchFromTheStartGetsEveryEventInOrder) {
  ASSERT_TRUE(Train("ok-1").ok());
  const std::vector<JobEvent> live = EventsIn(Watch("ok-1", 0));
  EXPECT_EQ(StatesIn(live), kWholeLife);
  int64_t last = 0;
  int checkpoints = 0;
  for (const JobEvent& event : live) {
    EXPECT_GT(event.sequence(), last);
    EXPECT_TRUE(event.has_time());
    last = event.sequence();
    if (event.has_checkpoint_written()) {
      ++checkpoints;
      EXPECT_EQ(event.checkpoint_written().id(), "ok-1-step-10");
    }
  }
  EXPECT_EQ(checkpoints, 1);
  // The store returns the same events in one message.
  const std::vector<WatchJobResponse> replay = Watch("ok-1", 0);
  ASSERT_EQ(replay.size(), 1U);
  EXPECT_EQ(StatesIn(EventsIn(replay)), kWholeLife);
  EXPECT_EQ(replay[0].cursor(), last);
}

TEST_F(WatchTest, ACursorGoesOnWhereTheWatchBeforeEndedAlsoAfterARestart) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  int64_t cursor = 0;
  {
    grpc::ClientContext context;
    WatchJobRequest request;
    request.set_job_id("hold-1");
    const auto reader = stub_->WatchJob(&context, request);
    WatchJobResponse update;
    while (cursor == 0 && reader->Read(&update)) {
      for (const JobEvent& event : update.events()) {
        if (event.state_changed().to() == JOB_STATE_RUNNING) cursor = update.cursor();
      }
    }
    context.TryCancel();
    reader->Finish();
  }
  ASSERT_GT(cursor, 0);
  ASSERT_TRUE(Cancel("hold-1").ok());
  WatchToEnd("hold-1");
  Restart([] {});
  const std::vector<JobEvent> rest = EventsIn(Watch("hold-1", cursor));
  EXPECT_EQ(StatesIn(rest), (std::vector<JobState>{JOB_STATE_CANCELLING, JOB_STATE_CANCELLED}));
  for (const JobEvent& event : rest) EXPECT_GT(event.sequence(), cursor);
}

TEST_F(WatchTest, OnlyNewEventsAreSentWhenNoneOfTheOldAreAskedFor) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  grpc::ClientContext context;
  WatchJobRequest request;
  request.set_job_id("hold-1");
  request.set_cursor(-1);
  const auto reader = stub_->WatchJob(&context, request);
  WatchJobResponse update;
  ASSERT_TRUE(reader->Read(&update));
  EXPECT_EQ(update.job().state(), JOB_STATE_RUNNING);
  EXPECT_TRUE(update.events().empty());
  EXPECT_GT(update.cursor(), 0);
  ASSERT_TRUE(Cancel("hold-1").ok());
  std::vector<WatchJobResponse> updates;
  while (reader->Read(&update)) updates.push_back(update);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(StatesIn(EventsIn(updates)),
            (std::vector<JobState>{JOB_STATE_CANCELLING, JOB_STATE_CANCELLED}));
}

TEST_F(WatchTest, ManyEventsComeInMessagesOfAtMost256) {
  Restart([this] {
    const auto store = *JobStore::Open(temp_.path());
    ASSERT_TRUE(store->Begin().ok());
    Job job = MakeJob("long-1", JOB_STATE_SUCCEEDED);
    ASSERT_TRUE(store->PutJob(1, job).ok());
    for (int i = 0; i < 600; ++i) {
      ASSERT_TRUE(store->AddEvent(TextEvent("long-1", absl::StrCat("line ", i))).ok());
    }
    ASSERT_TRUE(store->Commit().ok());
  });
  const std::vector<WatchJobResponse> updates = Watch("long-1", 0);
  ASSERT_EQ(updates.size(), 3U);
  for (const WatchJobResponse& update : updates) {
    EXPECT_LE(update.events_size(), 256);
    EXPECT_EQ(update.job().id(), "long-1");
  }
  const std::vector<JobEvent> events = EventsIn(updates);
  ASSERT_EQ(events.size(), 600U);
  for (int i = 0; i < 600; ++i) EXPECT_EQ(events[i].updated(), absl::StrCat("line ", i));
}

TEST_F(WatchTest, LargeEventsComeInMessagesOfBoundedSize) {
  Restart([this] {
    const auto store = *JobStore::Open(temp_.path());
    ASSERT_TRUE(store->PutJob(1, MakeJob("long-1", JOB_STATE_SUCCEEDED)).ok());
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(store->AddEvent(TextEvent("long-1", std::string(4096, 'x'))).ok());
    }
  });
  const std::vector<WatchJobResponse> updates = Watch("long-1", 0);
  EXPECT_EQ(EventsIn(updates).size(), 100U);
  for (const WatchJobResponse& update : updates) EXPECT_LT(update.ByteSizeLong(), 100'000U);
}

TEST_F(WatchTest, ACursorThatNoWatchGaveIsRefused) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  for (const int64_t cursor : {int64_t{-2}, int64_t{1} << 60}) {
    grpc::Status status;
    EXPECT_TRUE(Watch("ok-1", cursor, &status).empty());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("cursor is ", cursor)));
  }
}

// Readers stop reading for a while: the job continues, and they receive all events later.
TEST_F(WatchTest, ReadersThatStallHoldNothingUpAndMissNoEvent) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  struct Reader {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<WatchJobResponse>> stream;
  };
  std::vector<Reader> readers(100);
  for (Reader& reader : readers) {
    WatchJobRequest request;
    request.set_job_id("hold-1");
    reader.stream = stub_->WatchJob(&reader.context, request);
  }
  UpdateJobRequest update;
  update.set_job_id("hold-1");
  update.mutable_update_mask()->add_paths("labels");
  // Labels of 64 x 255 bytes fill the streams' windows, with more events than a reader queues.
  for (int i = 0; i < 64; ++i)
    (*update.mutable_labels())[absl::StrCat("k", i)] = std::string(255, 'v');
  constexpr int kUpdates = 600;
  for (int i = 0; i < kUpdates; ++i) ASSERT_TRUE(Update(update).ok());
  ASSERT_TRUE(Cancel("hold-1").ok());
  EXPECT_EQ(WatchToEnd("hold-1").state(), JOB_STATE_CANCELLED);
  int64_t dropped = 0;
  for (Reader& reader : readers) {
    std::vector<WatchJobResponse> updates;
    while (reader.stream->Read(&updates.emplace_back()))
      dropped += updates.back().dropped_updates();
    updates.pop_back();
    EXPECT_TRUE(reader.stream->Finish().ok());
    int updated = 0;
    for (const JobEvent& event : EventsIn(updates)) updated += event.updated().empty() ? 0 : 1;
    EXPECT_EQ(updated, kUpdates);
    EXPECT_EQ(updates.back().job().state(), JOB_STATE_CANCELLED);
  }
  EXPECT_GT(dropped, 0);
}

TEST_F(WatchTest, ListsFilterOrderAndPage) {
  Restart([this] { FillWithEnded(temp_.path(), 120); });
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntil("hold-1", [](const Job& job) { return job.progress().step() > 0; });
  ListJobsRequest request;
  ListJobsResponse page = List(request);
  ASSERT_EQ(page.jobs_size(), 100);
  EXPECT_EQ(page.jobs(0).id(), "hold-1");
  EXPECT_GT(page.jobs(0).progress().step(), 0) << "progress is laid over what the store has";
  request.set_page_token(page.next_page_token());
  page = List(request);
  EXPECT_EQ(page.jobs_size(), 21);
  EXPECT_EQ(page.jobs(20).id(), "done-1");
  EXPECT_EQ(page.next_page_token(), "");
  request.set_owner("rare");
  grpc::ClientContext context;
  const grpc::Status status = stub_->ListJobs(&context, request, &page);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("with the other fields as there"));
  request.clear_page_token();
  (*request.mutable_labels())["team"] = "red";
  page = List(request);
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).id(), "done-100");
  request.Clear();
  request.add_states(JOB_STATE_RUNNING);
  EXPECT_EQ(List(request).jobs_size(), 1);
  request.Clear();
  request.set_order(JOB_ORDER_PRIORITY);
  request.set_id_prefix("done-1");
  request.set_page_size(2);
  page = List(request);
  ASSERT_EQ(page.jobs_size(), 2);
  EXPECT_EQ(page.jobs(0).id(), "done-13");
  EXPECT_EQ(page.jobs(1).id(), "done-104");
}

TEST_F(WatchTest, WrongFiltersAreRefusedWithWhatIsAccepted) {
  const std::vector<std::pair<std::function<void(ListJobsRequest&)>, std::string>> cases = {
      {[](auto& r) { r.add_states(static_cast<JobState>(99)); },
       "states[0] is 99; accepted: QUEUED, STARTING"},
      {[](auto& r) { r.set_order(static_cast<JobOrder>(9)); },
       "order is 9; accepted: NEWEST_FIRST"},
      {[](auto& r) { (*r.mutable_labels())[""] = "v"; }, "labels has a key of 0 bytes"},
      {[](auto& r) { r.set_page_size(-1); }, "page_size is -1; accepted: 1 to 1000"},
      {[](auto& r) { r.set_page_token("done-3"); }, "page_token is \"done-3\""},
  };
  for (const auto& [spoil, message] : cases) {
    ListJobsRequest request;
    spoil(request);
    grpc::ClientContext context;
    ListJobsResponse response;
    const grpc::Status status = stub_->ListJobs(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }
}

TEST_F(WatchTest, ForgottenJobsLeaveTheirCheckpointsAndTheCounts) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  daemon_.reset();
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.retention.jobs = 0;
  StartDaemon(std::move(loaded));
  ASSERT_TRUE(Train("ok-2").ok());
  WatchToEnd("ok-2");
  grpc::ClientContext stats_context;
  StatsResponse stats;
  ASSERT_TRUE(stub_->Stats(&stats_context, {}, &stats).ok());
  EXPECT_EQ(stats.jobs_by_state().at("SUCCEEDED"), 0);
  EXPECT_EQ(List({}).jobs_size(), 0);
  grpc::ClientContext context;
  ListCheckpointsRequest request;
  request.set_job_id("ok-1");
  ListCheckpointsResponse checkpoints;
  ASSERT_TRUE(stub_->ListCheckpoints(&context, request, &checkpoints).ok());
  ASSERT_EQ(checkpoints.checkpoints_size(), 1);
  EXPECT_EQ(checkpoints.checkpoints(0).id(), "ok-1-step-10");
}

TEST_F(WatchTest, ABackupIsAWholeStore) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  grpc::ClientContext context;
  BackupStoreResponse backup;
  const grpc::Status status = stub_->BackupStore(&context, {}, &backup);
  ASSERT_TRUE(status.ok()) << status.error_message();
  TempDir restored;
  std::filesystem::copy_file(backup.path(), restored.path() + "/jobs.db");
  const auto store = *JobStore::Open(restored.path(), {.check = Database::Check::kFull});
  EXPECT_EQ((*ReadJob(store->database(), "ok-1"))->job.state(), JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace genesis
