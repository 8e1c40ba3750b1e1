#include "base/running_time.h"

#include <gtest/gtest.h>

namespace genesis {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(700);

class RunningTimeTest : public testing::Test {
 protected:
  // Simulates that the process runs for `duration`.
  void Run(absl::Duration duration) {
    for (const absl::Time end = steady_ + duration; steady_ < end;) {
      steady_ += absl::Milliseconds(200);
      EXPECT_EQ(time_.Beat(steady_), absl::ZeroDuration());
    }
  }
  absl::Duration Passed() const { return time_.Read(steady_) - kStart; }

  absl::Time steady_ = kStart;
  RunningTime time_;
};

TEST_F(RunningTimeTest, WithoutBeatsEveryMomentCounts) {
  steady_ += absl::Hours(5);
  EXPECT_EQ(Passed(), absl::Hours(5));
}

TEST_F(RunningTimeTest, BeatsCountEveryMomentOfAProcessThatRuns) {
  time_.Beat(steady_);
  Run(absl::Minutes(2));
  steady_ += absl::Milliseconds(130);
  EXPECT_EQ(Passed(), absl::Minutes(2) + absl::Milliseconds(130));
}

TEST_F(RunningTimeTest, APauseCountsForLessThanAnyDeadlineBeforeAndAfterItsBeat) {
  time_.Beat(steady_);
  Run(absl::Seconds(10));
  steady_ += absl::Hours(3);
  const absl::Duration before = Passed();
  EXPECT_EQ(before, absl::Seconds(10) + RunningTime::kMaxGap);
  EXPECT_LT(RunningTime::kMaxGap, absl::Seconds(1));
  EXPECT_EQ(time_.Beat(steady_), absl::Hours(3) - RunningTime::kMaxGap);
  EXPECT_EQ(Passed(), before);
  Run(absl::Seconds(30));
  EXPECT_EQ(Passed(), before + absl::Seconds(30));
}

TEST_F(RunningTimeTest, PausesAddUpAndTimeNeverGoesBack) {
  time_.Beat(steady_);
  for (int i = 0; i < 5; ++i) {
    const absl::Duration before = Passed();
    steady_ += absl::Seconds(9);
    EXPECT_GE(Passed(), before);
    time_.Beat(steady_);
    Run(absl::Seconds(1));
  }
  EXPECT_EQ(Passed(), 5 * (absl::Seconds(1) + RunningTime::kMaxGap));
}

TEST_F(RunningTimeTest, AfterTheLastBeatEveryMomentCountsAgain) {
  time_.Beat(steady_);
  steady_ += absl::Seconds(60);
  time_.End(steady_);
  steady_ += absl::Seconds(60);
  EXPECT_EQ(Passed(), absl::Seconds(60) + RunningTime::kMaxGap);
}

TEST(Heartbeat, AProcessThatRunsLosesNoTime) {
  const absl::Time steady = SteadyNow();
  const absl::Time begin = RunningNow();
  const auto passed = [begin] { return RunningNow() - begin; };
  {
    const Heartbeat heartbeat([](absl::Duration) {});
    SteadyNotification never;
    never.WaitFor(absl::Seconds(1));
    EXPECT_GE(passed(), RunningTime::kMaxGap);
  }
  const absl::Duration after = passed();
  EXPECT_GE(after, RunningTime::kMaxGap);
  EXPECT_LE(after, SteadyNow() - steady);
}

}  // namespace
}  // namespace genesis
