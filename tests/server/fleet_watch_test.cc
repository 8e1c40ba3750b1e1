// Tests of WatchJobs, ListEvents and waits of GetJob, through gRPC, on a real daemon.
#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <thread>

#include "server/api/event_watches.h"
#include "server/api/open_watches.h"
#include "server/ledger/job_table.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/jobs_for_test.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using training::v1::ListEventsRequest;
using training::v1::ListEventsResponse;
using training::v1::WatchJobsRequest;
using training::v1::WatchJobsResponse;

class FleetWatchTest : public DaemonTest {
 protected:
  // Reads a watch until `enough` is true of a message.
  template <typename Enough>
  std::vector<WatchJobsResponse> Watch(const WatchJobsRequest& request, Enough enough) {
    grpc::ClientContext context;
    const auto reader = stub_->WatchJobs(&context, request);
    std::vector<WatchJobsResponse> messages;
    while (reader->Read(&messages.emplace_back())) {
      if (!enough(messages.back())) continue;
      context.TryCancel();
      reader->Finish();
      return messages;
    }
    messages.pop_back();
    status_ = reader->Finish();
    return messages;
  }
  // Reads a watch until `count` jobs have ended.
  std::vector<JobEvent> WatchEnds(WatchJobsRequest request, int count) {
    std::set<std::string> ended;
    std::vector<JobEvent> events;
    Watch(request, [&](const WatchJobsResponse& message) {
      for (const JobEvent& event : message.events()) {
        events.push_back(event);
        if (event.has_state_changed() && IsFinal(event.state())) ended.insert(event.job_id());
      }
      return static_cast<int>(ended.size()) >= count;
    });
    return events;
  }
  std::vector<JobEvent> List(ListEventsRequest request) {
    std::vector<JobEvent> events;
    ListEventsResponse response;
    do {
      grpc::ClientContext context;
      status_ = stub_->ListEvents(&context, request, &response);
      if (!status_.ok()) return events;
      events.insert(events.end(), response.events().begin(), response.events().end());
      request.set_cursor(response.cursor());
    } while (response.more());
    cursor_ = response.cursor();
    return events;
  }
  template <typename Fill>
  void Restart(Fill fill) {
    daemon_.reset();
    fill();
    StartDaemon(MakeSettings(temp_.path()));
  }

  grpc::Status status_;
  int64_t cursor_ = 0;
};

std::vector<int64_t> Sequences(const std::vector<JobEvent>& events) {
  std::vector<int64_t> sequences;
  for (const JobEvent& event : events) sequences.push_back(event.sequence());
  return sequences;
}

TEST_F(FleetWatchTest, OneStreamHasTheEventsOfAllJobsWithoutGaps) {
  std::thread submits([this] {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(Train(absl::StrCat("ok-", i)).ok());
  });
  const std::vector<JobEvent> live = WatchEnds({}, 5);
  submits.join();
  for (size_t i = 0; i < live.size(); ++i) {
    EXPECT_EQ(live[i].sequence(), static_cast<int64_t>(i) + 1);
    EXPECT_TRUE(live[i].has_time());
    EXPECT_EQ(live[i].owner(), "anonymous");
    const bool moved = live[i].has_state_changed();
    EXPECT_TRUE(!moved || live[i].state() == live[i].state_changed().to());
  }
  const std::vector<JobEvent> listed = List({});
  ASSERT_GE(listed.size(), live.size());
  for (size_t i = 0; i < live.size(); ++i) {
    EXPECT_EQ(listed[i].SerializeAsString(), live[i].SerializeAsString());
  }
}

TEST_F(FleetWatchTest, AWatchContinuesAfterItsCursorAlsoAfterARestart) {
  ASSERT_TRUE(Train("ok-1").ok());
  const std::vector<JobEvent> first = WatchEnds({}, 1);
  Restart([] {});
  ASSERT_TRUE(Train("ok-2").ok());
  WatchJobsRequest request;
  request.set_cursor(first[1].sequence());
  const std::vector<JobEvent> rest = WatchEnds(request, 2);
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest[0].sequence(), first[2].sequence());
  for (size_t i = 1; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].sequence(), rest[i - 1].sequence() + 1);
  }
}

TEST_F(FleetWatchTest, TheFirstMessageIsABookmark) {
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  WatchJobsRequest request;
  request.set_cursor(-1);
  const auto messages = Watch(request, [](const auto&) { return true; });
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_TRUE(messages[0].events().empty());
  List({});
  EXPECT_EQ(messages[0].cursor(), cursor_);
  grpc::ClientContext context;
  ListJobsResponse jobs;
  ASSERT_TRUE(stub_->ListJobs(&context, {}, &jobs).ok());
  EXPECT_EQ(jobs.cursor(), cursor_);
}

TEST_F(FleetWatchTest, FiltersChooseJobsKindsAndStates) {
  Restart([this] {
    const auto store = *JobStore::Open(temp_.path());
    ASSERT_TRUE(store->Begin().ok());
    for (int i = 1; i <= 20; ++i) {
      Job job = MakeJob(absl::StrCat("job-", i), JOB_STATE_SUCCEEDED);
      job.set_owner(i % 2 == 0 ? "ann" : "bob");
      (*job.mutable_labels())["team"] = i % 5 == 0 ? "red" : "blue";
      ASSERT_TRUE(store->PutJob(i, job).ok());
      for (const JobState state : {JOB_STATE_QUEUED, JOB_STATE_SUCCEEDED}) {
        JobEvent event = TextEvent(job.id(), "");
        event.set_owner(job.owner());
        event.set_state(state);
        event.mutable_state_changed()->set_to(state);
        ASSERT_TRUE(store->AddEvent(event, job.labels()).ok());
      }
      ASSERT_TRUE(store->AddEvent(TextEvent(job.id(), "text"), job.labels()).ok());
    }
    ASSERT_TRUE(store->Commit().ok());
  });
  const auto list = [this](auto set) {
    ListEventsRequest request;
    set(*request.mutable_filter());
    return List(request);
  };
  EXPECT_EQ(list([](auto&) {}).size(), 60U);
  EXPECT_EQ(list([](auto& filter) { filter.set_job_id("job-3"); }).size(), 3U);
  EXPECT_EQ(list([](auto& filter) { filter.set_owner("ann"); }).size(), 20U);
  EXPECT_EQ(list([](auto& filter) { (*filter.mutable_labels())["team"] = "red"; }).size(), 12U);
  EXPECT_EQ(list([](auto& filter) { (*filter.mutable_labels())["team"] = ""; }).size(), 60U);
  EXPECT_EQ(list([](auto& filter) { (*filter.mutable_labels())["none"] = ""; }).size(), 0U);
  EXPECT_EQ(list([](auto& filter) { filter.add_kinds("updated"); }).size(), 20U);
  EXPECT_EQ(list([](auto& filter) { filter.add_states(JOB_STATE_SUCCEEDED); }).size(), 20U);
  const std::vector<JobEvent> both = list([](auto& filter) {
    filter.add_states(JOB_STATE_SUCCEEDED);
    (*filter.mutable_labels())["team"] = "red";
    filter.set_owner("bob");
  });
  EXPECT_EQ(Sequences(both), (std::vector<int64_t>{14, 44}));
  // The same by pages of one, and by a watch.
  ListEventsRequest pages;
  pages.set_page_size(1);
  pages.mutable_filter()->set_owner("ann");
  EXPECT_EQ(List(pages).size(), 20U);
  EXPECT_EQ(cursor_, 60);
  WatchJobsRequest watch;
  watch.mutable_filter()->set_owner("ann");
  int seen = 0;
  Watch(watch, [&](const WatchJobsResponse& message) {
    seen += message.events_size();
    return message.cursor() == 60;
  });
  EXPECT_EQ(seen, 20);
}

// Events in memory and in the store are chosen by two pieces of code.
TEST_F(FleetWatchTest, EventsInMemoryAndInTheStoreMatchAlike) {
  JobSpec red = MakeSpec();
  (*red.mutable_scheduling()->mutable_labels())["team"] = "red";
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(Train(absl::StrCat("ok-", i), i < 3 ? red : MakeSpec()).ok());
  WatchEnds({}, 6);
  // Labels are those after the event, also if they change later.
  grpc::ClientContext update_context;
  training::v1::UpdateJobRequest update;
  update.set_job_id("ok-0");
  update.mutable_update_mask()->add_paths("labels");
  (*update.mutable_labels())["team"] = "\"blue\"\n";
  training::v1::UpdateJobResponse updated;
  ASSERT_TRUE(stub_->UpdateJob(&update_context, update, &updated).ok());
  std::vector<training::v1::EventFilter> filters(8);
  (*filters[6].mutable_labels())["team"] = "red";
  (*filters[7].mutable_labels())["team"] = "\"blue\"\n";
  filters[1].add_kinds("state_changed");
  filters[2].add_kinds("checkpoint_written");
  filters[3].add_states(JOB_STATE_RUNNING);
  filters[4].set_job_id("ok-3");
  filters[5].set_owner("anonymous");
  std::vector<std::vector<int64_t>> live;
  for (const auto& filter : filters) {
    ListEventsRequest request;
    *request.mutable_filter() = filter;
    live.push_back(Sequences(List(request)));
    EXPECT_FALSE(live.back().empty());
  }
  Restart([] {});
  for (size_t i = 0; i < filters.size(); ++i) {
    ListEventsRequest request;
    *request.mutable_filter() = filters[i];
    EXPECT_EQ(Sequences(List(request)), live[i]) << i;
  }
}

TEST_F(FleetWatchTest, DroppedEventsAreAnErrorUnlessTheCallerAcceptsThem) {
  Restart([this] {
    const auto store = *JobStore::Open(temp_.path());
    ASSERT_TRUE(store->Begin().ok());
    ASSERT_TRUE(store->PutJob(1, MakeJob("many", JOB_STATE_SUCCEEDED)).ok());
    ASSERT_TRUE(store->PutJob(2, MakeJob("few", JOB_STATE_SUCCEEDED)).ok());
    ASSERT_TRUE(store->AddEvent(TextEvent("few", "first")).ok());
    for (int i = 0; i < 1100; ++i) ASSERT_TRUE(store->AddEvent(TextEvent("many", "x")).ok());
    ASSERT_TRUE(store->PruneEvents("many", "updated").ok());
    ASSERT_TRUE(store->Commit().ok());
  });
  ListEventsRequest all;
  all.set_skip_dropped(true);
  EXPECT_EQ(List(all).size(), 1001U);
  ListEventsRequest request;
  request.set_cursor(50);
  List(request);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status_.error_message(), HasSubstr("cursor is 50"));
  EXPECT_THAT(status_.error_message(), HasSubstr("accepted: 101 or more"));
  request.set_skip_dropped(true);
  EXPECT_EQ(List(request).size(), 1000U);
  request.set_skip_dropped(false);
  request.set_cursor(101);
  EXPECT_EQ(List(request).size(), 1000U);
  WatchJobsRequest watch;
  watch.set_cursor(50);
  EXPECT_TRUE(Watch(watch, [](const auto&) { return false; }).empty());
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  grpc::ClientContext context;
  WatchJobRequest of_many;
  of_many.set_job_id("many");
  of_many.set_cursor(50);
  const auto reader = stub_->WatchJob(&context, of_many);
  WatchJobResponse update;
  EXPECT_FALSE(reader->Read(&update));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
  // No event of these filters is missing.
  request.set_cursor(50);
  request.mutable_filter()->set_job_id("few");
  List(request);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  request.mutable_filter()->clear_job_id();
  request.mutable_filter()->add_kinds("incident");
  List(request);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  watch.set_cursor(0);
  int seen = 0;
  Watch(watch, [&](const WatchJobsResponse& message) {
    seen += message.events_size();
    return message.cursor() == 1101;
  });
  EXPECT_EQ(seen, 1001);
}

TEST_F(FleetWatchTest, ADeletedJobLeavesOneEvent) {
  JobSpec red = MakeSpec();
  (*red.mutable_scheduling()->mutable_labels())["team"] = "red";
  ASSERT_TRUE(Train("ok-1", red).ok());
  WatchToEnd("ok-1");
  grpc::ClientContext context;
  training::v1::DeleteJobRequest request;
  request.set_job_id("ok-1");
  request.set_delete_checkpoints(true);
  training::v1::DeleteJobResponse response;
  ASSERT_TRUE(stub_->DeleteJob(&context, request, &response).ok());
  const std::vector<JobEvent> events = List({});
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events.back().has_deleted());
  EXPECT_FALSE(events.back().deleted().by_retention());
  EXPECT_EQ(events.back().job_id(), "ok-1");
  EXPECT_EQ(events.back().state(), JOB_STATE_SUCCEEDED);
  ListEventsRequest of_label;
  (*of_label.mutable_filter()->mutable_labels())["team"] = "red";
  of_label.mutable_filter()->add_kinds("deleted");
  EXPECT_EQ(List(of_label).size(), 1U);
  Restart([] {});
  EXPECT_EQ(List(of_label).size(), 1U);
  const std::vector<JobEvent> stored = List({});
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(stored[0].sequence(), events.back().sequence());
  // A new job of that ID begins with its own events.
  ASSERT_TRUE(Train("ok-1").ok());
  WatchToEnd("ok-1");
  grpc::ClientContext again;
  WatchJobRequest whole;
  whole.set_job_id("ok-1");
  const auto reader = stub_->WatchJob(&again, whole);
  WatchJobResponse update;
  int seen = 0;
  while (reader->Read(&update)) {
    seen += update.events_size();
    for (const JobEvent& event : update.events()) EXPECT_FALSE(event.has_deleted());
  }
  EXPECT_GT(seen, 0);
}

TEST_F(FleetWatchTest, ACallMayWaitForTheEndOrForAnEvent) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  List({});
  const int64_t cursor = cursor_;
  training::v1::GetJobResponse job;
  ListEventsResponse page;
  std::thread for_end([&] {
    grpc::ClientContext context;
    training::v1::GetJobRequest request;
    request.set_job_id("hold-1");
    request.set_wait_seconds(300);
    EXPECT_TRUE(stub_->GetJob(&context, request, &job).ok());
  });
  std::thread for_event([&] {
    grpc::ClientContext context;
    ListEventsRequest request;
    request.set_cursor(cursor);
    request.set_wait_seconds(300);
    EXPECT_TRUE(stub_->ListEvents(&context, request, &page).ok());
  });
  ASSERT_TRUE(Cancel("hold-1").ok());
  for_end.join();
  for_event.join();
  EXPECT_EQ(job.job().state(), JOB_STATE_CANCELLED);
  ASSERT_FALSE(page.events().empty());
  EXPECT_EQ(page.events(0).sequence(), cursor + 1);
}

TEST_F(FleetWatchTest, AWaitEndsWithItsTimeAndWithTheDaemon) {
  ASSERT_TRUE(Train("hold-1").ok());
  WatchUntilRunning("hold-1");
  grpc::ClientContext context;
  training::v1::GetJobRequest request;
  request.set_job_id("hold-1");
  request.set_wait_seconds(1);
  training::v1::GetJobResponse job;
  std::atomic<bool> answered = false;
  std::thread asks([&] {
    EXPECT_TRUE(stub_->GetJob(&context, request, &job).ok());
    answered = true;
  });
  // The main program calls Tend a few times a second.
  while (!answered) {
    daemon_->Tend();
    absl::SleepFor(absl::Milliseconds(50));
  }
  asks.join();
  EXPECT_EQ(job.job().state(), JOB_STATE_RUNNING);
  std::thread waits([this] {
    grpc::ClientContext other;
    training::v1::GetJobRequest longer;
    longer.set_job_id("hold-1");
    longer.set_wait_seconds(300);
    training::v1::GetJobResponse unused;
    stub_->GetJob(&other, longer, &unused);
  });
  daemon_.reset();
  waits.join();
}

TEST_F(FleetWatchTest, BadFiltersCursorsAndWaitsAreRefusedWithAllFaults) {
  const auto refusal = [this](const ListEventsRequest& request) {
    List(request);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status_.error_message();
  };
  ListEventsRequest request;
  request.set_cursor(int64_t{1} << 60);
  EXPECT_THAT(refusal(request), HasSubstr("cursor is 1152921504606846976"));
  request.set_cursor(-1);
  EXPECT_THAT(refusal(request), HasSubstr("cursor is -1"));
  request.set_cursor(0);
  request.set_wait_seconds(301);
  EXPECT_THAT(refusal(request), HasSubstr("0 to 300"));
  request.set_wait_seconds(0);
  request.mutable_filter()->add_kinds("log_line");
  request.mutable_filter()->add_states(JOB_STATE_UNSPECIFIED);
  EXPECT_THAT(refusal(request), testing::AllOf(HasSubstr("log_line"), HasSubstr("state_changed"),
                                               HasSubstr("filter.states")));
  for (int i = 0; i < 10000; ++i) request.mutable_filter()->add_kinds("updated");
  const std::string many = refusal(request);
  EXPECT_THAT(many, HasSubstr("filter.kinds"));
  EXPECT_LT(many.size(), 1000U);
}

TEST_F(FleetWatchTest, TheWatchesOfOneCallerAreBounded) {
  struct Reader {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<WatchJobsResponse>> stream;
  };
  std::vector<Reader> readers(OpenWatches::kMaxOfCaller);
  WatchJobsResponse message;
  for (Reader& reader : readers) {
    reader.stream = stub_->WatchJobs(&reader.context, {});
    ASSERT_TRUE(reader.stream->Read(&message));
  }
  EXPECT_TRUE(Watch({}, [](const auto&) { return false; }).empty());
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (Reader& reader : readers) {
    reader.context.TryCancel();
    reader.stream->Finish();
  }
}

Caller CallerNamed(const std::string& name) {
  Caller caller;
  caller.name = name;
  return caller;
}

TEST(EventWatchesTest, TheWaitsOfOneCallerAreBounded) {
  EventLog log;
  EventWatches watches(&log, nullptr);
  int answered = 0;
  const auto wait = [&](const std::string& caller) {
    return watches.Wait(CallerNamed(caller), absl::Hours(1),
                        {[&](bool last) {
                           answered += last ? 1 : 0;
                           return last;
                         },
                         nullptr});
  };
  for (int i = 0; i < 512; ++i) ASSERT_TRUE(wait("ann").ok());
  const absl::Status refused = wait("ann");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(), HasSubstr("at most 512 of one caller"));
  EXPECT_TRUE(wait("bob").ok());
  watches.Stop();
  EXPECT_EQ(answered, 513);
  EXPECT_TRUE(wait("ann").ok()) << "answered at once";
  EXPECT_EQ(answered, 514);
}

// The caller's connection has ended, or its token was revoked.
TEST(EventWatchesTest, AWaitEndsWhenItsCallIsNoLongerWanted) {
  EventLog log;
  const JobView view(nullptr);
  EventWatches watches(&log, &view);
  std::atomic<bool> revoked = false;
  std::atomic<int> refused = 0;
  const EventWatches::Answer answer = {
      [](bool last) {
        EXPECT_FALSE(last) << "answered";
        return false;
      },
      [&](const absl::Status& status) { refused += absl::IsUnauthenticated(status) ? 1 : 0; }};
  Caller ann = CallerNamed("ann");
  ann.check = [&] { return revoked ? absl::UnauthenticatedError("revoked") : absl::OkStatus(); };
  for (int i = 0; i < 512; ++i) ASSERT_TRUE(watches.Wait(ann, absl::Hours(1), answer).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(watches.Wait(ann, absl::Hours(1), answer)));
  EXPECT_EQ(refused, 0);
  revoked = true;
  while (refused < 512) {
    watches.Tend();
    absl::SleepFor(absl::Milliseconds(20));
  }
  revoked = false;
  EXPECT_TRUE(watches.Wait(ann, absl::Hours(1), answer).ok()) << "its places are free";
  revoked = true;
  watches.Stop();
  EXPECT_EQ(refused, 513);
}

}  // namespace
}  // namespace genesis
