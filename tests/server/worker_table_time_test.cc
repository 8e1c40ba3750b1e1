// Tests of workers that hang or are absent, with a clock that can stop.
#include <gmock/gmock.h>

#include "tests/server/worker_table_fixture.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using training::v1::AttachRequest;

TEST_F(WorkerTableTest, AWorkerThatHangsIsEnded) {
  const std::string id = Busy("job");
  AttachRequest started;
  started.mutable_started();
  ASSERT_TRUE(Report(id, started, "job"));
  Pass(absl::Milliseconds(59'999));
  EXPECT_THAT(done_, IsEmpty());
  Pass(absl::Milliseconds(1));
  ASSERT_EQ(Done<TellHung>().size(), 1U);
  EXPECT_EQ(Done<TellHung>()[0].what, "no progress for 1m while making steps (hang.step_seconds)");
  EXPECT_EQ(Done<TellHung>()[0].claim, 1);
  EXPECT_THAT(Signals(), ElementsAre("w9-1:15"));
  Pass(absl::Seconds(10));
  EXPECT_THAT(Done<TellHung>(), IsEmpty()) << "it is told once";
  EXPECT_THAT(Signals(), ElementsAre("w9-1:9"));
  Exit(id);
  Detach(id);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.forced, "no progress for 1m while making steps (hang.step_seconds)");
}

TEST_F(WorkerTableTest, TimeInWhichTheDaemonDidNotRunIsNotTheWorkers) {
  const std::string id = Busy("job");
  AttachRequest started;
  started.mutable_started();
  ASSERT_TRUE(Report(id, started, "job"));
  Pass(absl::Seconds(20));
  clock_.Stop(absl::Hours(7));
  Pass(absl::Seconds(39));
  EXPECT_THAT(done_, IsEmpty());
  Pass(absl::Seconds(1));
  ASSERT_EQ(Done<TellHung>().size(), 1U) << "one that hangs is ended all the same";
  clock_.Stop(absl::Minutes(3));
  Pass(absl::Seconds(9));
  EXPECT_THAT(Signals(), IsEmpty()) << "it has its ten seconds after SIGTERM";
  Pass(absl::Seconds(1));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:9"));
}

TEST_F(WorkerTableTest, AWorkerThatIsAwayIsAwaitedWhileTheDaemonRuns) {
  const std::string id = Busy("job");
  Detach(id);
  clock_.Stop(absl::Minutes(40));
  Pass(absl::Seconds(25));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_TRUE(Attach(id, "job", 1).ok());
  Pass(absl::Minutes(2));
  EXPECT_THAT(Signals(), IsEmpty()) << "it prepares the job for as long as it may";
}

}  // namespace
}  // namespace genesis
