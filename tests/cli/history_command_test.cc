// Tests of history against a daemon in this process that responds with pages.
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

constexpr int64_t kNow = 1767323045;  // 2026-01-02 03:04:05

class FakeHistoryService : public TrainingService::Service {
 public:
  grpc::Status GetHistory(grpc::ServerContext*, const GetHistoryRequest* request,
                          GetHistoryResponse* response) override {
    requests.push_back(*request);
    if (!status.ok()) return status;
    *response = pages.at(requests.size() - 1);
    return grpc::Status::OK;
  }

  std::vector<GetHistoryResponse> pages;
  std::vector<GetHistoryRequest> requests;
  grpc::Status status;
};

HistoryRow FullRow() {
  HistoryRow row;
  row.mutable_time()->set_seconds(kNow - 60);
  row.set_job_id("fast");
  row.set_step(120);
  row.set_mode(PRECISION_MODE_MIXED_FP16);
  row.set_loss(0.125);
  row.set_baseline_loss(0.25);
  row.set_loss_scale(65536);
  row.set_training_steps(120);
  row.set_fp16_steps(100);
  row.set_overflow_steps(5);
  row.set_overflow_rate(0.05);
  row.set_fp16_enabled(true);
  row.set_memory_allocated_bytes(1024);
  row.set_samples_per_second(2500.5);
  row.set_state(JOB_STATE_RUNNING);
  return row;
}

HistoryRow BareRow() {
  HistoryRow row;
  row.mutable_time()->set_seconds(kNow);
  row.set_job_id("cancelled-early");
  row.set_state(JOB_STATE_CANCELLED);
  return row;
}

class HistoryCommandTest : public testing::Test {
 protected:
  HistoryCommandTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    fake_.pages.resize(2);
    *fake_.pages[0].add_rows() = FullRow();
    fake_.pages[0].set_next_page_token("more");
    *fake_.pages[1].add_rows() = BareRow();
  }
  ~HistoryCommandTest() override { server_->Shutdown(); }

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
                    .now = [] { return absl::FromUnixSeconds(kNow); },
                    .interrupt = interrupt_};
    return FindCommand(arguments.command)->run(arguments, session);
  }

  FakeHistoryService fake_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Interrupt interrupt_;
};

TEST_F(HistoryCommandTest, CsvHasTheColumnsOfTheTableAndNothingWhereNothingWasMeasured) {
  EXPECT_EQ(Run({"history", "--csv"}), ExitCode::kOk) << err_.str();
  EXPECT_EQ(
      out_.str(),
      "timestamp,job_id,step,mode,loss,baseline_loss,loss_scale,training_steps,fp16_steps,"
      "overflow_steps,overflow_rate,fp16_enabled,memory_allocated_bytes,samples_per_second,"
      "state,divergence_ratio,held_out_loss,divergences\n"
      "2026-01-02 03:03:05.000,fast,120,MIXED_FP16,0.125,0.25,65536,120,100,5,0.05,1,1024,2500.5,"
      "RUNNING,,,\n"
      "2026-01-02 03:04:05.000,cancelled-early,0,,,,,0,0,0,,0,,,CANCELLED,,,\n");
}

TEST_F(HistoryCommandTest, ReadsEveryPageOfOneDayUnlessToldOtherwise) {
  EXPECT_EQ(Run({"history", "--job", "fast"}), ExitCode::kOk);
  ASSERT_EQ(fake_.requests.size(), 2u);
  EXPECT_EQ(fake_.requests[0].since().seconds(), kNow - 86400);
  EXPECT_EQ(fake_.requests[1].job_id(), "fast");
  EXPECT_EQ(fake_.requests[1].page_token(), "more");
  EXPECT_THAT(out_.str(), HasSubstr("2026-01-02 03:03:05.000  fast"));
  EXPECT_THAT(out_.str(), HasSubstr("5.00 %"));
  EXPECT_THAT(out_.str(), HasSubstr("cancelled-early  CANCELLED"));
}

TEST_F(HistoryCommandTest, SinceTakesDaysAndAll) {
  fake_.pages[0].clear_next_page_token();
  EXPECT_EQ(Run({"history", "--since", "7d"}), ExitCode::kOk);
  EXPECT_EQ(fake_.requests[0].since().seconds(), kNow - 7 * 86400);
  EXPECT_EQ(Run({"history", "--since", "all"}), ExitCode::kOk);
  EXPECT_FALSE(fake_.requests[1].has_since());
}

TEST_F(HistoryCommandTest, SinceThatIsNoTimeIsRefusedWithWhatIsAccepted) {
  for (const char* text : {"", "yesterday", "7", "d", "-1d", "0h", "7 d", "99999999w"}) {
    err_.str("");
    EXPECT_EQ(Run({"history", "--since", text}), ExitCode::kUsage) << text;
    EXPECT_EQ(err_.str(), std::string("genesisctl: --since is \"") + text +
                              "\"; accepted: a number with s, m, h, d or w such as 7d, or all\n");
  }
  EXPECT_EQ(Run({"history", "--csv", "--output", "json"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--csv and --output are two forms; give one of them"));
  EXPECT_TRUE(fake_.requests.empty());
}

TEST_F(HistoryCommandTest, JsonHasAllPagesInOne) {
  EXPECT_EQ(Run({"history", "--output", "json"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"job_id\": \"fast\""));
  EXPECT_THAT(out_.str(), HasSubstr("\"job_id\": \"cancelled-early\""));
}

TEST_F(HistoryCommandTest, ARefusalIsReported) {
  fake_.status = {grpc::StatusCode::UNAVAILABLE, "the history cannot be read: no file"};
  EXPECT_NE(Run({"history"}), ExitCode::kOk);
  EXPECT_THAT(err_.str(), HasSubstr("the history cannot be read"));
}

}  // namespace
}  // namespace genesis::cli
