#include "trainer/distributed/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace genesis {
namespace {

using ::testing::HasSubstr;

constexpr SharedMemory::Size kSize{.ranks = 2, .counters = 3, .bytes = 10000};
constexpr std::chrono::minutes kLong{5};

// Starts a process for rank 1, which exits with the result of `work`.
pid_t Fork(const SharedMemory::Address& address, const std::function<int(SharedMemory&)>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  auto memory = SharedMemory::Open(address, kSize, 1);
  _exit(memory.ok() ? work(**memory) : 99);
}

int ExitOf(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::unique_ptr<SharedMemory> Create() {
  auto memory = SharedMemory::Create(kSize, 0);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

TEST(SharedMemoryTest, ProcessesSeeEachOthersRegionsAndWaitForEachOther) {
  const auto memory = Create();
  const pid_t child = Fork(memory->address(), [](SharedMemory& own) {
    for (uint32_t turn = 1; turn <= 2000; ++turn) {
      if (!own.Await(0, 2, turn, kLong, {}).empty()) return 1;
      std::memcpy(own.region(1), own.region(0), kSize.bytes);
      own.Set(0, turn);
    }
    return 0;
  });
  for (uint32_t turn = 1; turn <= 2000; ++turn) {
    std::memset(memory->region(0), static_cast<int>(turn), kSize.bytes);
    memory->Set(2, turn);
    ASSERT_EQ(memory->Await(1, 0, turn, kLong, {}), "");
    ASSERT_EQ(std::memcmp(memory->region(0), memory->region(1), kSize.bytes), 0);
  }
  EXPECT_EQ(ExitOf(child), 0);
}

TEST(SharedMemoryTest, AKilledProcessHasEnded) {
  const auto memory = Create();
  const pid_t child = Fork(memory->address(), [](SharedMemory& own) {
    own.Set(0, 1);
    pause();
    return 0;
  });
  ASSERT_EQ(memory->Await(1, 0, 1, kLong, {}), "");
  kill(child, SIGKILL);
  EXPECT_EQ(memory->Await(1, 0, 2, kLong, {}), "has ended");
  EXPECT_EQ(ExitOf(child), -SIGKILL);
  // The child's last message is received although the child was killed.
  EXPECT_EQ(memory->Await(1, 0, 1, kLong, {}), "");
}

TEST(SharedMemoryTest, AStoppedProcessIsSilent) {
  const auto memory = Create();
  const pid_t child = Fork(memory->address(), [](SharedMemory& own) {
    own.Set(0, 1);
    pause();
    return 0;
  });
  ASSERT_EQ(memory->Await(1, 0, 1, kLong, {}), "");
  kill(child, SIGSTOP);
  EXPECT_EQ(memory->Await(1, 0, 2, std::chrono::milliseconds(300), {}),
            "has been silent for 0.3 s");
  std::vector<double> told;
  const SharedMemory::Reminder reminder{.first = std::chrono::milliseconds(30),
                                        .tell = [&](double seconds) {
                                          told.push_back(seconds);
                                          if (told.size() == 3) kill(child, SIGKILL);
                                        }};
  EXPECT_EQ(memory->Await(1, 0, 2, kLong, reminder), "has ended");
  ASSERT_EQ(told.size(), 3U);
  EXPECT_GE(told[0], 0.03);
  EXPECT_GE(told[1], 0.06);
  EXPECT_GE(told[2], 0.12);
  kill(child, SIGKILL);
  EXPECT_EQ(ExitOf(child), -SIGKILL);
}

TEST(SharedMemoryTest, WhatIsAnothersIsRefused) {
  const auto memory = Create();
  SharedMemory::Address address = memory->address();
  ++address.cookie;
  EXPECT_THAT(std::string(SharedMemory::Open(address, kSize, 1).status().message()),
              HasSubstr("is another job's"));
  address = memory->address();
  SharedMemory::Size size = kSize;
  size.bytes *= 2;
  EXPECT_THAT(std::string(SharedMemory::Open(address, size, 1).status().message()),
              HasSubstr("is another file"));
  address.descriptor = 1000000;
  EXPECT_THAT(std::string(SharedMemory::Open(address, kSize, 1).status().message()),
              HasSubstr("No such file"));
}

TEST(SharedMemoryTest, WhatIsLargerThanAnAddressSpaceIsRefused) {
  SharedMemory::Size size = kSize;
  size.bytes = size_t{1} << 60;
  EXPECT_FALSE(SharedMemory::Create(size, 0).ok());
}

}  // namespace
}  // namespace genesis
