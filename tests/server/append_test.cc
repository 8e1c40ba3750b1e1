// Tests of AppendTrajectories through the real listener of a daemon in this process. Durable data
// is read back from the files, as a worker does.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "replay/replay_snapshot.h"
#include "server/daemon.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/http_client.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: the test uses many names of the API.

constexpr int kObservations = 2;
constexpr int kActions = 1;

// Returns a batch of `count` transitions whose values follow from `first`.
AppendTrajectoriesRequest Batch(const std::string& id, int first, int count,
                                const std::string& dataset = "arm") {
  AppendTrajectoriesRequest request;
  request.set_dataset(dataset);
  request.set_batch_id(id);
  request.set_observation_size(kObservations);
  request.set_action_size(kActions);
  for (int i = first; i < first + count; ++i) {
    for (int column = 0; column < kObservations; ++column) {
      request.add_observations(static_cast<float>(i * 10 + column));
      request.add_next_observations(static_cast<float>(i * 10 + 10 + column));
    }
    request.add_actions(static_cast<float>(-i));
    request.add_rewards(static_cast<float>(i) / 2);
    request.add_terminals(i % 5 == 4);
    request.add_timeouts(false);
  }
  return request;
}

class AppendTest : public testing::Test {
 protected:
  AppendTest() { Start(); }

  void Start() {
    daemon_.reset();
    daemon_ = std::make_unique<Daemon>(MakeSettings(temp_.path()));
    const auto failure = daemon_->Start();
    ASSERT_FALSE(failure) << failure->message;
    stub_ = TrainingService::NewStub(
        grpc::CreateChannel(daemon_->grpc_address(), grpc::InsecureChannelCredentials()));
  }

  // Sends the messages as one stream.
  grpc::Status Append(const std::vector<AppendTrajectoriesRequest>& messages) {
    grpc::ClientContext context;
    response_.Clear();
    auto writer = stub_->AppendTrajectories(&context, &response_);
    for (const AppendTrajectoriesRequest& message : messages) {
      if (!writer->Write(message)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }

  std::string Folder(const std::string& dataset = "arm") const {
    return temp_.path() + "/datasets/" + dataset;
  }

  // Returns the rewards of the transitions on disk, oldest first; empty if there is no buffer.
  std::vector<float> Rewards(const std::string& dataset = "arm") const {
    std::vector<float> rewards;
    const auto snapshot = ReplaySnapshot::Open(
        Folder(dataset), [&](uint64_t, const ReplayRowEnd& end) { rewards.push_back(end.reward); });
    return snapshot.ok() ? rewards : std::vector<float>();
  }

  std::string MetricsPage() const {
    const std::string& address = daemon_->http_address();
    const HttpClient http(std::stoi(address.substr(address.rfind(':') + 1)));
    http.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return http.ReadAll();
  }

  void ExpectRefused(const std::vector<AppendTrajectoriesRequest>& messages, grpc::StatusCode code,
                     const std::string& message) {
    const grpc::Status status = Append(messages);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(status.error_message(), message);
  }

  TempDir temp_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<TrainingService::Stub> stub_;
  AppendTrajectoriesResponse response_;
};

TEST_F(AppendTest, BatchesAreOnDiskWhenTheAnswerComes) {
  const grpc::Status status = Append({Batch("b-1", 0, 3), Batch("b-2", 3, 4)});
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.appended_batches(), 2);
  EXPECT_EQ(response_.appended_transitions(), 7);
  EXPECT_EQ(response_.repeated_batches(), 0);
  EXPECT_EQ(response_.buffer_transitions(), 7);
  EXPECT_EQ(Rewards(), (std::vector<float>{0, 0.5, 1, 1.5, 2, 2.5, 3}));
}

TEST_F(AppendTest, EveryColumnArrivesAsItWasSent) {
  AppendTrajectoriesRequest batch = Batch("b-1", 3, 2);
  batch.add_priorities(0.25f);
  batch.add_priorities(4);
  batch.mutable_timeouts()->Set(0, true);
  ASSERT_TRUE(Append({batch}).ok());
  std::vector<ReplayRowEnd> ends;
  const auto snapshot = ReplaySnapshot::Open(
      Folder(), [&](uint64_t, const ReplayRowEnd& end) { ends.push_back(end); });
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  std::vector<float> rows(2 * snapshot->layout().row_bytes() / sizeof(float));
  ASSERT_TRUE(snapshot->Read(0, 2, reinterpret_cast<char*>(rows.data())).ok());
  const std::vector<float> first(rows.begin(), rows.begin() + 7);
  EXPECT_EQ(first, (std::vector<float>{30, 31, -3, 40, 41, 1.5, 0.25}));
  EXPECT_EQ(ends[0].flags, kTimeoutFlag);
  EXPECT_EQ(ends[1].flags, kTerminalFlag);
  EXPECT_EQ(ends[1].priority, 4);
}

TEST_F(AppendTest, ARepeatedBatchIsStoredOnceAlsoAfterARestart) {
  ASSERT_TRUE(Append({Batch("b-1", 0, 3)}).ok());
  ASSERT_TRUE(Append({Batch("b-1", 0, 3), Batch("b-2", 3, 2)}).ok());
  EXPECT_EQ(response_.repeated_batches(), 1);
  EXPECT_EQ(response_.appended_batches(), 1);
  EXPECT_EQ(response_.buffer_transitions(), 5);
  Start();
  ASSERT_TRUE(Append({Batch("b-2", 3, 2)}).ok());
  EXPECT_EQ(response_.repeated_batches(), 1);
  EXPECT_EQ(Rewards().size(), 5u);
}

TEST_F(AppendTest, TheSameIdWithOtherTransitionsIsRefused) {
  ASSERT_TRUE(Append({Batch("b-1", 0, 3)}).ok());
  ExpectRefused(
      {Batch("b-1", 1, 3)}, grpc::StatusCode::ALREADY_EXISTS,
      "batch \"b-1\" is in the buffer with other transitions; accepted: the same ones, or "
      "another id");
  EXPECT_EQ(Rewards().size(), 3u);
}

TEST_F(AppendTest, ANumberThatIsNotFiniteIsRefusedWithItsPlaceAndLeavesNoFolder) {
  AppendTrajectoriesRequest batch = Batch("b-1", 0, 5);
  batch.mutable_observations()->Set(3 * kObservations + 1, std::nanf(""));
  ExpectRefused({batch}, grpc::StatusCode::INVALID_ARGUMENT,
                "batch \"b-1\": transition 3: observations[1] is nan; every value must be finite");
  EXPECT_FALSE(std::filesystem::exists(Folder()));
  batch = Batch("b-1", 0, 5);
  batch.mutable_rewards()->Set(2, -std::numeric_limits<float>::infinity());
  ExpectRefused({batch}, grpc::StatusCode::INVALID_ARGUMENT,
                "batch \"b-1\": transition 2: reward is -inf; every value must be finite");
}

TEST_F(AppendTest, ABadBatchLeavesThoseBeforeItAndTheBufferUsable) {
  AppendTrajectoriesRequest bad = Batch("b-2", 3, 2);
  bad.mutable_actions()->Set(0, std::nanf(""));
  EXPECT_EQ(Append({Batch("b-1", 0, 3), bad, Batch("b-3", 5, 1)}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Rewards().size(), 3u);
  ASSERT_TRUE(Append({Batch("b-1", 0, 3), Batch("b-2", 3, 2), Batch("b-3", 5, 1)}).ok());
  EXPECT_EQ(Rewards(), (std::vector<float>{0, 0.5, 1, 1.5, 2, 2.5}));
}

TEST_F(AppendTest, EveryFaultOfAMessageIsNamed) {
  ExpectRefused({}, grpc::StatusCode::INVALID_ARGUMENT,
                "the stream has no batch; accepted: at least 1 message before its end");
  AppendTrajectoriesRequest batch = Batch("b-1", 0, 1, "../out");
  batch.set_action_size(0);
  batch.set_capacity(-1);
  ExpectRefused({batch}, grpc::StatusCode::INVALID_ARGUMENT,
                "dataset is \"../out\"; accepted: 1 to 63 lower-case letters, digits and '-', the "
                "first no '-'\n"
                "action_size is 0; accepted: 1 to 1048576\n"
                "capacity is -1; accepted: 0 (as before) or 1 to 1099511627776");
  batch = Batch("b-1", 0, 3);
  batch.mutable_observations()->RemoveLast();
  batch.add_terminals(true);
  ExpectRefused({batch}, grpc::StatusCode::INVALID_ARGUMENT,
                "batch \"b-1\": observations has 5 numbers; accepted: 6 (3 rewards x 2)\n"
                "batch \"b-1\": terminals has 4 values; accepted: 3, one per reward, or none");
  batch.clear_rewards();
  ExpectRefused({batch}, grpc::StatusCode::INVALID_ARGUMENT,
                "batch \"b-1\": rewards has no number; accepted: one for each of at least 1 "
                "transition");
  batch.clear_batch_id();
  ExpectRefused({batch}, grpc::StatusCode::INVALID_ARGUMENT,
                "batch_id has 0 bytes; accepted: 1 to 255");
  EXPECT_FALSE(std::filesystem::exists(Folder()));
}

TEST_F(AppendTest, AStreamFeedsOneDataset) {
  AppendTrajectoriesRequest brief = Batch("b-2", 3, 2);
  brief.clear_dataset();
  brief.clear_observation_size();
  brief.clear_action_size();
  ASSERT_TRUE(Append({Batch("b-1", 0, 3), brief}).ok());
  EXPECT_EQ(Rewards().size(), 5u);
  AppendTrajectoriesRequest wide = Batch("b-4", 0, 1);
  wide.set_capacity(9);
  ExpectRefused({Batch("b-3", 5, 1), wide}, grpc::StatusCode::INVALID_ARGUMENT,
                "batch \"b-4\": capacity is 9; accepted in this stream: none, as in the first "
                "message");
  ExpectRefused(
      {Batch("b-3", 5, 1), Batch("b-4", 0, 1, "leg")}, grpc::StatusCode::INVALID_ARGUMENT,
      "batch \"b-4\": dataset is \"leg\"; accepted in this stream: \"arm\" or none; open a "
      "stream per dataset");
}

TEST_F(AppendTest, OtherSizesThanTheBuffersAreRefused) {
  ASSERT_TRUE(Append({Batch("b-1", 0, 3)}).ok());
  AppendTrajectoriesRequest other = Batch("b-2", 0, 1);
  other.set_action_size(2);
  other.add_actions(1);
  ExpectRefused(
      {other}, grpc::StatusCode::FAILED_PRECONDITION,
      Folder() +
          ": column actions is float32 [1] in this buffer and float32 [2] in the request; "
          "accepted: the same columns (in Python by columns=), or another buffer");
  EXPECT_TRUE(Append({Batch("b-2", 3, 1)}).ok());
}

TEST_F(AppendTest, ALinkIsNoDataset) {
  TempDir outside;
  std::filesystem::create_symlink(outside.path(), Folder());
  ExpectRefused({Batch("b-1", 0, 1)}, grpc::StatusCode::FAILED_PRECONDITION,
                absl::StrCat("dataset \"arm\" is a link; accepted: a folder in the dataset root ",
                             temp_.path(), "/datasets, or a name that is free there"));
  EXPECT_TRUE(std::filesystem::is_empty(outside.path()));
}

TEST_F(AppendTest, TheCapacityIsKeptOverARestartAndCanBeChanged) {
  AppendTrajectoriesRequest first = Batch("b-0", 0, 1);
  first.set_capacity(16);
  std::vector<AppendTrajectoriesRequest> batches = {first};
  for (int i = 1; i < 40; ++i) batches.push_back(Batch(absl::StrCat("b-", i), i, 1));
  ASSERT_TRUE(Append(batches).ok());
  EXPECT_EQ(response_.appended_batches(), 40);
  EXPECT_LE(response_.buffer_transitions(), 16);
  EXPECT_EQ(Rewards().back(), 19.5f);
  Start();
  ASSERT_TRUE(Append({Batch("b-40", 40, 8)}).ok());
  EXPECT_LE(response_.buffer_transitions(), 16);
  AppendTrajectoriesRequest larger = Batch("b-48", 48, 20);
  larger.set_capacity(1000);
  ASSERT_TRUE(Append({larger, Batch("b-68", 68, 20)}).ok());
  EXPECT_GE(response_.buffer_transitions(), 48);
}

TEST_F(AppendTest, ABatchBeforeACancelStaysWholeAndTheStreamCanBeRepeated) {
  grpc::ClientContext context;
  auto writer = stub_->AppendTrajectories(&context, &response_);
  ASSERT_TRUE(writer->Write(Batch("b-1", 0, 3)));
  while (Rewards().size() < 3) absl::SleepFor(absl::Milliseconds(1));
  for (int i = 0; i < 50; ++i) writer->Write(Batch(absl::StrCat("c-", i), 3 + 7 * i, 7));
  context.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  std::vector<AppendTrajectoriesRequest> again = {Batch("b-1", 0, 3)};
  for (int i = 0; i < 50; ++i) again.push_back(Batch(absl::StrCat("c-", i), 3 + 7 * i, 7));
  ASSERT_TRUE(Append(again).ok());
  EXPECT_GE(response_.repeated_batches(), 1);
  EXPECT_EQ(response_.repeated_batches() + response_.appended_batches(), 51);
  const std::vector<float> rewards = Rewards();
  ASSERT_EQ(rewards.size(), 353u);
  for (size_t i = 0; i < rewards.size(); ++i) EXPECT_EQ(rewards[i], static_cast<float>(i) / 2);
}

TEST_F(AppendTest, TwoStreamsAppendToOneDatasetAtOnce) {
  static constexpr int kBatches = 40;
  std::vector<std::thread> recorders;
  for (const int recorder : {0, 1}) {
    recorders.emplace_back([this, recorder] {
      grpc::ClientContext context;
      AppendTrajectoriesResponse response;
      auto writer = stub_->AppendTrajectories(&context, &response);
      for (int i = 0; i < kBatches; ++i) {
        writer->Write(Batch(absl::StrCat("r-", recorder, "-", i), 1000 * recorder + 5 * i, 5));
      }
      writer->WritesDone();
      const grpc::Status status = writer->Finish();
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.appended_batches(), kBatches);
    });
  }
  for (std::thread& recorder : recorders) recorder.join();
  const std::vector<float> rewards = Rewards();
  ASSERT_EQ(rewards.size(), 2u * kBatches * 5);
  // Batches are not interleaved, and batches of one stream keep their order.
  std::vector<float> next = {0, 500};
  for (size_t i = 0; i < rewards.size(); ++i) {
    float& expected = next[rewards[i] >= 500 ? 1 : 0];
    if (i % 5 != 0) {
      EXPECT_EQ(rewards[i], rewards[i - 1] + 0.5f);
    }
    EXPECT_EQ(rewards[i], expected);
    expected += 0.5f;
  }
}

TEST_F(AppendTest, ManyDatasetsTakeTurnsWithABoundedNumberOfWriters) {
  for (const int round : {0, 1}) {
    for (int i = 0; i < ReplayStore::kMaxOpen + 4; ++i) {
      const std::string name = absl::StrCat("arm-", i);
      const grpc::Status status = Append({Batch(absl::StrCat("b-", round), round * 3, 3, name)});
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
  }
  EXPECT_EQ(Rewards("arm-0").size(), 6u);
  int locks = 0;
  for (const auto& link : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    locks += std::filesystem::read_symlink(link, gone).filename() == "lock" ? 1 : 0;
  }
  // The data folder may have a lock of its own.
  EXPECT_LE(locks, ReplayStore::kMaxOpen + 1);
  EXPECT_GE(locks, ReplayStore::kMaxOpen);
}

TEST_F(AppendTest, StreamsAreBoundedAndAnEndedOneMakesRoom) {
  struct Stream {
    grpc::ClientContext context;
    AppendTrajectoriesResponse response;
    std::unique_ptr<grpc::ClientWriter<AppendTrajectoriesRequest>> writer;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < ReplayStore::kMaxStreams; ++i) {
    streams.push_back(std::make_unique<Stream>());
    Stream& stream = *streams.back();
    stream.writer = stub_->AppendTrajectories(&stream.context, &stream.response);
    ASSERT_TRUE(stream.writer->Write(Batch("b-1", 0, 1, absl::StrCat("arm-", i))));
  }
  for (int i = 0; i < ReplayStore::kMaxStreams; ++i) {
    while (Rewards(absl::StrCat("arm-", i)).empty()) absl::SleepFor(absl::Milliseconds(1));
  }
  ExpectRefused(
      {Batch("b-1", 0, 1)}, grpc::StatusCode::RESOURCE_EXHAUSTED,
      "32 streams append at this time; accepted: at most 32; try again when one has ended");
  for (const auto& stream : streams) {
    stream->writer->WritesDone();
    EXPECT_TRUE(stream->writer->Finish().ok());
  }
  EXPECT_TRUE(Append({Batch("b-1", 0, 1)}).ok());
}

TEST_F(AppendTest, ADrainEndsAStreamThatIsOpen) {
  grpc::ClientContext context;
  auto writer = stub_->AppendTrajectories(&context, &response_);
  ASSERT_TRUE(writer->Write(Batch("b-1", 0, 3)));
  while (Rewards().size() < 3) absl::SleepFor(absl::Milliseconds(1));
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(daemon_->Drain());
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  EXPECT_EQ(Rewards().size(), 3u);
}

TEST_F(AppendTest, AppendedTransitionsAreCountedOnce) {
  ASSERT_TRUE(Append({Batch("b-1", 0, 3), Batch("b-1", 0, 3)}).ok());
  ExpectRefused(
      {Batch("b-1", 1, 3)}, grpc::StatusCode::ALREADY_EXISTS,
      "batch \"b-1\" is in the buffer with other transitions; accepted: the same ones, or "
      "another id");
  const std::string page = MetricsPage();
  EXPECT_TRUE(
      absl::StrContains(page, "genesis_transitions_appended_total{deployment=\"stable\"} 3\n"));
  EXPECT_TRUE(absl::StrContains(page,
                                "genesis_requests_total{deployment=\"stable\",code=\"OK\",method="
                                "\"AppendTrajectories\",protocol=\"grpc\"} 1\n"));
}

}  // namespace
}  // namespace genesis
