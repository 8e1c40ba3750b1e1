#include "trainer/runtime/idle_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

namespace genesis {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

int64_t ThreadsOfProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

int64_t Processors() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  return CPU_COUNT(&set);
}

class IdleThreadsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(2);
    at::parallel_for(0, 2, 1, [](int64_t, int64_t) {});
    at_start_ = ThreadsOfProcess();
  }
  // Threads of an earlier test end some time after it.
  void SetUp() override { AwaitThreads(at_start_); }
  static void AwaitThreads(int64_t most) {
    const auto patience = IdleThreads::Clock::now() + seconds(60);
    while (ThreadsOfProcess() > most && IdleThreads::Clock::now() < patience) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_LE(ThreadsOfProcess(), most);
  }
  // Sets the variables that RestartWithSettings leaves set.
  IdleThreadsTest() {
    setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
    setenv("GOMP_SPINCOUNT", "300000", 1);
  }
  // Advances the time by a second, in which threads waited `waited` for a processor.
  void Look(IdleThreads& threads, nanoseconds waited) {
    waited_ += waited;
    now_ += seconds(1);
    threads.Adapt(now_);
  }

  static inline int64_t at_start_ = 0;  // Threads of the process.
  nanoseconds waited_{0};
  IdleThreads::Clock::time_point now_;
  IdleThreads::Waited account_ = [this] { return std::optional(waited_); };
};

TEST_F(IdleThreadsTest, StayAwakeWhileNobodyElseWantsTheProcessors) {
  IdleThreads threads(2, account_);
  EXPECT_TRUE(threads.awake());
  Look(threads, milliseconds(300));
  EXPECT_TRUE(threads.awake());  // One sample is not enough.
  Look(threads, milliseconds(200));
  EXPECT_TRUE(threads.awake());
  Look(threads, milliseconds(300));
  EXPECT_FALSE(threads.awake());
  Look(threads, milliseconds(300));
  EXPECT_FALSE(threads.awake());
  Look(threads, milliseconds(10));
  EXPECT_TRUE(threads.awake());
}

TEST_F(IdleThreadsTest, LookOnceASecond) {
  IdleThreads threads(2, account_);
  Look(threads, seconds(0));
  waited_ += milliseconds(900);
  threads.Adapt(now_ + milliseconds(900));
  EXPECT_TRUE(threads.awake());
  threads.Adapt(now_ + milliseconds(1000));
  EXPECT_FALSE(threads.awake());
}

// Threads sleep because libgomp then has one thread more than there are processors.
TEST_F(IdleThreadsTest, SleepByBeingMoreThanTheProcessors) {
  const int64_t before = ThreadsOfProcess();
  IdleThreads threads(2, account_);
  Look(threads, seconds(0));
  Look(threads, milliseconds(300));
  // The thread that owns the team, and the other threads of the team.
  EXPECT_EQ(ThreadsOfProcess(), before + 1 + Processors() - 2 + 1);
  Look(threads, seconds(0));
  EXPECT_TRUE(threads.awake());
  AwaitThreads(before);
}

TEST_F(IdleThreadsTest, LeaveTheSettingsOfOthersAndSingleThreadsAlone) {
  const int64_t before = ThreadsOfProcess();
  IdleThreads single(1, account_);
  setenv("OMP_WAIT_POLICY", "ACTIVE", 1);
  IdleThreads of_others(2, account_);
  for (IdleThreads* const threads : {&single, &of_others}) {
    Look(*threads, seconds(0));
    Look(*threads, milliseconds(300));
    EXPECT_TRUE(threads->awake());
  }
  EXPECT_EQ(ThreadsOfProcess(), before);
}

TEST_F(IdleThreadsTest, ReadTheKernelsAccount) {
  const auto waited = IdleThreads::WaitedInKernel();
  ASSERT_TRUE(waited.has_value());
  EXPECT_GE(*waited, nanoseconds(0));
}

}  // namespace
}  // namespace genesis
