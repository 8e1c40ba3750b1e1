// Tests of events against a daemon in this process that responds with pages and a stream.
#include <grpcpp/grpcpp.h>

#include <sstream>

#include "cli/commands/command_table.h"
#include "cli/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis::cli {
namespace {

using testing::HasSubstr;
using namespace training::v1;  // NOLINT: the fake uses many names of the API.

constexpr int64_t kEventTime = 1767323045;

class FakeEventService : public TrainingService::Service {
 public:
  // One event per page.
  grpc::Status ListEvents(grpc::ServerContext*, const ListEventsRequest* request,
                          ListEventsResponse* response) override {
    list = *request;
    const auto at = static_cast<size_t>(request->cursor());
    if (at < events.size()) *response->add_events() = events[at];
    response->set_cursor(request->cursor() + 1);
    response->set_more(at + 1 < events.size());
    return grpc::Status::OK;
  }
  grpc::Status WatchJobs(grpc::ServerContext*, const WatchJobsRequest* request,
                         grpc::ServerWriter<WatchJobsResponse>* writer) override {
    watch = *request;
    WatchJobsResponse response;
    for (const JobEvent& event : events) *response.add_events() = event;
    response.set_cursor(77);
    writer->Write(response);
    return grpc::Status::OK;
  }

  std::vector<JobEvent> events;
  ListEventsRequest list;
  WatchJobsRequest watch;
};

class EventsCommandTest : public testing::Test {
 protected:
  EventsCommandTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    for (const char* id : {"walk-1", "walk-2\x1b[2J"}) {
      JobEvent event;
      event.set_sequence(static_cast<int64_t>(fake_.events.size()) + 1);
      event.set_job_id(id);
      event.mutable_time()->set_seconds(kEventTime);
      event.mutable_rank_changed()->set_reason("rank 1 on cpu: killed by signal 9");
      fake_.events.push_back(event);
    }
  }
  ~EventsCommandTest() override { server_->Shutdown(); }

  ExitCode Run(const std::vector<std::string>& args) {
    const Arguments arguments =
        ParseArguments(args, [](const std::string&) { return std::nullopt; });
    EXPECT_THAT(arguments.errors, testing::IsEmpty());
    grpc::ChannelArguments options;
    options.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto service = TrainingService::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port_), grpc::InsecureChannelCredentials(), options));
    Session session{.service = *service,
                    .server = "the-daemon:1",
                    .output = arguments.output,
                    .in = in_,
                    .out = out_,
                    .err = err_,
                    .terminal = false,
                    .width = 80,
                    .now = [] { return absl::FromUnixSeconds(kEventTime); },
                    .interrupt = interrupt_};
    return FindCommand(arguments.command)->run(arguments, session);
  }

  FakeEventService fake_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Interrupt interrupt_;
};

TEST_F(EventsCommandTest, PrintsPageByPageWhatTheFilterAsksFor) {
  EXPECT_EQ(Run({"events", "--kind=rank_changed", "--state=running", "--label=team=a",
                 "--owner=ann", "--job=walk-1"}),
            ExitCode::kOk);
  EXPECT_EQ(out_.str(),
            "1  walk-1  2026-01-02 03:04:05Z  rank ended: rank 1 on cpu: killed by signal 9\n"
            "2  walk-2?[2J  2026-01-02 03:04:05Z  rank ended: rank 1 on cpu: killed by signal 9\n");
  const EventFilter& filter = fake_.list.filter();
  EXPECT_EQ(filter.kinds(0), "rank_changed");
  EXPECT_EQ(filter.states(0), JOB_STATE_RUNNING);
  EXPECT_EQ(filter.labels().at("team"), "a");
  EXPECT_EQ(filter.owner(), "ann");
  EXPECT_EQ(filter.job_id(), "walk-1");
  EXPECT_TRUE(fake_.list.skip_dropped());
}

// In other commands -f names a file.
TEST_F(EventsCommandTest, FollowsByItsShortOption) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"events", "-f"}, std::vector<std::string>{"events", "--follow"}}) {
    const Arguments arguments =
        ParseArguments(words, [](const std::string&) { return std::nullopt; });
    EXPECT_THAT(arguments.errors, testing::IsEmpty());
    EXPECT_TRUE(arguments.Has("follow"));
  }
}

TEST_F(EventsCommandTest, FollowsAndSaysWhereToContinue) {
  EXPECT_EQ(Run({"events", "--follow", "--cursor=5", "--output=json"}), ExitCode::kUnavailable);
  EXPECT_EQ(fake_.watch.cursor(), 5);
  EXPECT_THAT(out_.str(), testing::StartsWith("{\"sequence\":\"1\""));
  EXPECT_THAT(err_.str(), HasSubstr("continue with --cursor 77"));
}

TEST_F(EventsCommandTest, RefusesWhatIsNoCursorAndNoState) {
  EXPECT_EQ(Run({"events", "--cursor=x"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--cursor is \"x\""));
  EXPECT_EQ(Run({"events", "--state=lost"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--state is \"lost\""));
}

}  // namespace
}  // namespace genesis::cli
