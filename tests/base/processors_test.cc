#include "base/processors.h"

#include <gtest/gtest.h>

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

  const int all_ = static_cast<int>(std::thread::hardware_concurrency());
  TempDir folder_;
};

TEST_F(ProcessorsTest, AreThoseOfTheAffinityWithoutAQuota) {
  EXPECT_EQ(Usable(), all_);
  folder_.Write("system.slice/genesis.service/cpu.max", "max 100000\n");
  EXPECT_EQ(Usable(), all_);
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
