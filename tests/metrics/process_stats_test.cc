#include "metrics/process_stats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

namespace genesis {
namespace {

TEST(ProcessStats, ReadsThisProcess) {
  const ProcessStats stats = ReadProcessStats();
  ASSERT_TRUE(stats.cpu_seconds && stats.resident_bytes && stats.open_fds && stats.max_fds &&
              stats.start_time_seconds);
  EXPECT_GT(*stats.resident_bytes, 1e6);
  EXPECT_GE(*stats.open_fds, 3);
  EXPECT_GE(*stats.max_fds, *stats.open_fds);
  const double now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(*stats.start_time_seconds, now + 2);
  EXPECT_GT(*stats.start_time_seconds, now - 3600);
}

TEST(ProcessStats, AFigureThatCannotBeReadIsAbsent) {
  const ProcessStats stats = ReadProcessStats("/nonexistent");
  EXPECT_FALSE(stats.cpu_seconds);
  EXPECT_FALSE(stats.resident_bytes);
  EXPECT_FALSE(stats.open_fds);
  EXPECT_FALSE(stats.start_time_seconds);
}

TEST(ProcessStats, AProgramNameWithSpacesAndBracketsDoesNotShiftTheFields) {
  const std::filesystem::path proc =
      std::filesystem::path(testing::TempDir()) / ("proc-" + std::to_string(getpid()));
  std::filesystem::create_directories(proc / "self" / "fd");
  std::ofstream(proc / "self" / "stat")
      << "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 300 200 0 0 20 0 1 0 1000 4096 25 0\n";
  std::ofstream(proc / "stat") << "cpu 1 2 3\nbtime 1700000000\n";
  const ProcessStats stats = ReadProcessStats(proc.string());
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_EQ(stats.cpu_seconds, 500 / ticks);
  EXPECT_EQ(stats.resident_bytes, 25.0 * static_cast<double>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(stats.start_time_seconds, 1700000000 + 1000 / ticks);
  EXPECT_EQ(stats.open_fds, 0);
  std::filesystem::remove_all(proc);
}

}  // namespace
}  // namespace genesis
