// Tests of workers that send unreadable reports, or reports about other jobs: their job ends, and
// no other job is affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/text/utf8.h"
#include "tests/server/daemon_fixture.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::Not;

class HostileWorkerTest : public DaemonTest {
 protected:
  // Returns all jobs, like `genesisctl jobs`.
  std::vector<Job> List() {
    grpc::ClientContext context;
    ListJobsResponse response;
    const grpc::Status status = stub_->ListJobs(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.jobs().begin(), response.jobs().end()};
  }
  std::string Log() const {
    std::ifstream file(temp_.path() + "/log/orchestrator.log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(HostileWorkerTest, AReportThatCannotBeReadDoesNotKeepItsJobForEver) {
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.hang.setup_seconds = 2;
  daemon_.reset();
  StartDaemon(std::move(loaded));
  JobSpec spec = MakeSpec();
  spec.set_max_restarts(0);
  ASSERT_TRUE(Train("garble-1", spec).ok());
  const Job job = WatchToEnd("garble-1");
  EXPECT_EQ(job.state(), JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_HANG) << job.state_reason();
  ASSERT_TRUE(Train("ok-after").ok());
  EXPECT_EQ(WatchToEnd("ok-after").state(), JOB_STATE_SUCCEEDED);
}

TEST_F(HostileWorkerTest, AReportThatCannotBeReadStopsNoCancel) {
  JobSpec spec = MakeSpec();
  spec.mutable_scheduling()->set_stop_grace_seconds(1);
  ASSERT_TRUE(Train("garble-1", spec).ok());
  WatchUntilState("garble-1", JOB_STATE_STARTING);
  ASSERT_TRUE(Cancel("garble-1").ok());
  EXPECT_EQ(WatchToEnd("garble-1").state(), JOB_STATE_CANCELLED);
}

TEST_F(HostileWorkerTest, ComingAndGoingIsNoProgress) {
  LoadedSettings loaded = MakeSettings(temp_.path());
  loaded.settings.hang.step_seconds = 2;
  daemon_.reset();
  StartDaemon(std::move(loaded));
  JobSpec spec = MakeSpec();
  spec.set_max_restarts(0);
  ASSERT_TRUE(Train("flap-1", spec).ok());
  const Job job = WatchToEnd("flap-1");
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_HANG) << job.state_reason();
}

TEST_F(HostileWorkerTest, AMegabyteOfFailureIsBoundedAndForgesNoLogRecord) {
  ASSERT_TRUE(Train("shout-1").ok());
  const Job job = WatchToEnd("shout-1");
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_DATA);
  EXPECT_LE(job.ByteSizeLong(), 20'000U);
  EXPECT_THAT(job.failure().message(), HasSubstr("the first line"));
  EXPECT_THAT(job.failure().message(), HasSubstr("the last line"));
  ASSERT_TRUE(Train("shout-2").ok());
  WatchToEnd("shout-2");
  EXPECT_EQ(List().size(), 2U);
}

TEST_F(HostileWorkerTest, OutputThatIsNoUtf8LeavesTheRecordReadable) {
  JobSpec spec = MakeSpec();
  spec.set_max_restarts(0);
  ASSERT_TRUE(Train("splutter-1", spec).ok());
  const Job job = WatchToEnd("splutter-1");
  EXPECT_EQ(job.failure().cause(), FAILURE_CAUSE_SIGNAL);
  ASSERT_FALSE(job.failure().log_tail().empty());
  EXPECT_EQ(*job.failure().log_tail().rbegin(), "Traceback \\xff\\xfe of a module\\x1b[2J");
  daemon_.reset();
  StartDaemon(MakeSettings(temp_.path()));
  EXPECT_EQ(Get("splutter-1").failure().cause(), FAILURE_CAUSE_SIGNAL);
  EXPECT_EQ(List().size(), 1U);
}

TEST_F(HostileWorkerTest, AWorkerSpeaksForTheCheckpointsOfItsOwnJobAlone) {
  ASSERT_TRUE(Train("ok-other").ok());
  WatchToEnd("ok-other");
  ASSERT_TRUE(Train("foreign-1").ok());
  const Job job = WatchToEnd("foreign-1");
  EXPECT_EQ(job.latest_checkpoint().job_id(), "foreign-1");
  grpc::ClientContext context;
  ListCheckpointsRequest request;
  ListCheckpointsResponse response;
  ASSERT_TRUE(stub_->ListCheckpoints(&context, request, &response).ok());
  std::vector<std::string> ids;
  for (const Checkpoint& each : response.checkpoints()) ids.push_back(each.id());
  EXPECT_THAT(ids, testing::UnorderedElementsAre("ok-other-step-10", "foreign-1-step-5",
                                                 "foreign-1-step-10"));
}

TEST_F(HostileWorkerTest, OutputIsBoundedOnDisk) {
  ASSERT_TRUE(Train("flood-1").ok());
  WatchUntilRunning("flood-1");
  const std::string folder = temp_.path() + "/log/workers";
  const auto size = [&] {
    uintmax_t bytes = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder)) {
      bytes += std::filesystem::file_size(each.path());
    }
    return bytes;
  };
  constexpr uintmax_t kMax = uintmax_t{24} << 20U;
  for (int i = 0; i < 600 && size() > kMax; ++i) absl::SleepFor(absl::Milliseconds(100));
  EXPECT_LE(size(), kMax);
  ASSERT_TRUE(Cancel("flood-1").ok());
  WatchToEnd("flood-1");
}

TEST_F(HostileWorkerTest, ACheckpointCallIsAnsweredWhenItsPausedJobLosesItsWorker) {
  ASSERT_TRUE(Train("stop-lose-1").ok());
  WatchUntilRunning("stop-lose-1");
  CheckpointResponse response;
  grpc::Status asked;
  std::thread caller([&] { asked = TakeCheckpoint("stop-lose-1", &response); });
  // The call may arrive before the pause or be refused because of it; both results are valid.
  absl::SleepFor(absl::Milliseconds(300));
  ASSERT_TRUE(Pause("stop-lose-1").ok());
  caller.join();
  EXPECT_FALSE(asked.ok());
  EXPECT_EQ(WatchUntilState("stop-lose-1", JOB_STATE_PAUSED).state(), JOB_STATE_PAUSED);
}

}  // namespace
}  // namespace genesis
