#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "tests/temp_dir.h"

namespace genesis {
namespace {

class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() {
    std::filesystem::create_directories(folder_.path() + "/system.slice/genesis.service");
    folder_.Write("own", "0::/system.slice/genesis.service\n");
  }
  int Usable() const { return UsableProcessors(folder_.path() + "/own", folder_.path()); }

  static cpu_set_t Affinity() {
    cpu_set_t allowed;
    EXPECT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    return allowed;
  }

  const cpu_set_t affinity_ = Affinity();
  const int all_ = CPU_COUNT(&affinity_);
  TempDir folder_;
};

TEST_F(ProcessorsTest, AreThoseOfTheAffinityWithoutAQuota) {
  EXPECT_EQ(Usable(), all_);
  folder_.Write("system.slice/genesis.service/cpu.max", "max 100000\n");
  EXPECT_EQ(Usable(), all_);
}

// Slurm and the CPU manager of Kubernetes give a process some of the host's processors.
TEST_F(ProcessorsTest, AreThoseThatTheProcessMayRunOn) {
  std::thread pinned([this] {
    cpu_set_t first;
    CPU_ZERO(&first);
    int processor = 0;
    while (!CPU_ISSET(processor, &affinity_)) ++processor;
    CPU_SET(processor, &first);
    ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);
    EXPECT_EQ(Usable(), 1);
  });
  pinned.join();
}

TEST_F(ProcessorsTest, AreNoMoreThanTheQuotaRoundedUp) {
  folder_.Write("system.slice/genesis.service/cpu.max", "20000 100000\n");
  EXPECT_EQ(Usable(), 1);
  folder_.Write("system.slice/genesis.service/cpu.max", "150000 100000\n");
  EXPECT_EQ(Usable(), std::min(all_, 2));
  folder_.Write("system.slice/genesis.service/cpu.max", "99900000 100000\n");
  EXPECT_EQ(Usable(), all_);
}

TEST_F(ProcessorsTest, ObeyTheGroupsAbove) {
  folder_.Write("system.slice/genesis.service/cpu.max", "max 100000\n");
  folder_.Write("system.slice/cpu.max", "100000 100000\n");
  EXPECT_EQ(Usable(), 1);
}

TEST_F(ProcessorsTest, AreThoseOfTheMountInANamespaceOfItsOwn) {
  folder_.Write("own", "0::/\n");
  folder_.Write("cpu.max", "100000 100000\n");
  EXPECT_EQ(Usable(), 1);
}

TEST_F(ProcessorsTest, AreThoseOfTheAffinityWhereThereAreNoGroups) {
  EXPECT_EQ(UsableProcessors("/nowhere", "/nowhere"), all_);
}

}  // namespace
}  // namespace genesis
