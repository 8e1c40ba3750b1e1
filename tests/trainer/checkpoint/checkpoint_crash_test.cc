#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/temp_dir.h"
#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/checkpoint/write_checkpoint.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TrainingState StateAt(int64_t step, int64_t width = 4) {
  TrainingState state =
      StateForTest(training::v1::OPTIMIZER_KIND_ADAMW, static_cast<uint64_t>(step), width);
  state.position.progress.set_step(step);
  return state;
}

// Runs `child` in a separate process and kills it when it enters system call `number`. Returns
// false if it ended before.
template <typename Function>
bool KilledAtCall(int number, Function child) {
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    child();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSTOPPED(status));
  // Entry and exit of a system call are separate stops.
  for (int stop = 1; stop < 2 * number; ++stop) {
    ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
    waitpid(pid, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return false;
    }
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return true;
}

TEST(CheckpointCrashTest, KilledAtAnySystemCallLeavesTheOldOneOrTheNew) {
  const TempDir temp;
  const CheckpointFolder names(temp.path(), "a");
  const std::string path = names.Path(7);
  const TrainingState before = StateAt(1);
  const TrainingState after = StateAt(2);
  std::set<int64_t> seen;
  int number = 0;
  bool killed = true;
  while (killed) {
    ASSERT_TRUE(WriteCheckpoint(before, path).ok());
    killed = KilledAtCall(++number, [&] {
      if (!WriteCheckpoint(after, path).ok()) _exit(1);
    });
    const absl::StatusOr<TrainingState> left = ReadCheckpoint(path);
    ASSERT_TRUE(left.ok()) << "killed at call " << number << ": " << left.status();
    seen.insert(left->position.progress.step());
    CheckpointFolder folder(temp.path(), "a");
    ASSERT_TRUE(folder.Prepare().ok());
    for (const auto& entry : fs::directory_iterator(temp.path())) {
      EXPECT_THAT(entry.path().filename().string(), testing::StartsWith("a-step-"));
    }
  }
  EXPECT_THAT(seen, ElementsAre(1, 2));
  // Two files are created, written, synced, closed and renamed, and the folder is synced.
  EXPECT_GT(number, 40);
}

// If there was no earlier checkpoint, either none or a complete one must exist afterwards.
TEST(CheckpointCrashTest, TheFirstCheckpointIsWholeOrNotThere) {
  const TempDir temp;
  const CheckpointFolder names(temp.path(), "a");
  const TrainingState state = StateAt(5);
  bool killed = true;
  for (int number = 1; killed; ++number) {
    fs::remove(names.Path(5));
    fs::remove(ManifestPath(names.Path(5)));
    killed = KilledAtCall(number, [&] {
      if (!WriteCheckpoint(state, names.Path(5)).ok()) _exit(1);
    });
    if (!fs::exists(names.Path(5))) continue;
    const auto verified = VerifyCheckpoint(names.Path(5));
    ASSERT_TRUE(verified.ok()) << number << verified.status();
    // VerifyCheckpoint also verifies the manifest, which became durable before the checkpoint.
    EXPECT_EQ(*verified, "");
  }
  EXPECT_TRUE(fs::exists(names.Path(5)));
}

TEST(CheckpointCrashTest, AWriterKilledAtAnyTimeLeavesOnlyWholeFiles) {
  const TempDir temp;
  std::mt19937 chooser(11);
  const TrainingState state = StateAt(1, 2000);
  int64_t newest = 0;
  for (int round = 0; round < 25; ++round) {
    const pid_t pid = fork();
    if (pid == 0) {
      CheckpointWriter writer(CheckpointFolder(temp.path(), "a"), {.keep_last = 2, .keep_best = 1});
      TrainingState next = state;
      for (next.position.progress.set_step(newest + 1);;
           next.position.progress.set_step(next.position.progress.step() + 1)) {
        const double loss = std::abs(static_cast<double>(next.position.progress.step() % 7) - 3);
        if (!writer.Submit(next, {.job_id = "a", .held_out_loss = loss}, nullptr).ok()) _exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(chooser() % 60000));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    CheckpointFolder folder(temp.path(), "a");
    ASSERT_TRUE(folder.Prepare().ok());
    for (const std::string& path : folder.Paths()) {
      const auto verified = VerifyCheckpoint(path);
      ASSERT_TRUE(verified.ok()) << verified.status();
      EXPECT_EQ(*verified, "");
    }
    if (folder.Paths().empty()) continue;
    const auto left = ReadCheckpoint(folder.Paths().front());
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_GE(left->position.progress.step(), newest);
    newest = left->position.progress.step();
  }
  EXPECT_GT(newest, 3);
  // If a writer is killed before it removes old checkpoints, the next writer removes them.
  const CheckpointFolder folder(temp.path(), "a");
  folder.Retain(2, newest, 1);
  EXPECT_LE(folder.Paths().size(), 3u);
}

// Runs `body` in a child, so that limits do not apply to the test itself.
template <typename Function>
void InChild(Function body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

bool Put(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

void ExpectFullDisk(const std::string& folder, const std::string& said) {
  CheckpointWriter writer(CheckpointFolder(folder, "a"), {});
  int calls = 0;
  const auto count = [&](const WrittenCheckpoint&) { ++calls; };
  EXPECT_TRUE(writer.Submit(StateAt(1), {}, count).ok());
  EXPECT_TRUE(writer.Flush().ok());
  EXPECT_TRUE(writer.Submit(StateAt(2, 20000), {}, count).ok());
  const absl::Status full = writer.Submit(StateAt(3), {}, count);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("a-step-000000000002.pt: writing failed"));
  EXPECT_THAT(std::string(full.message()), HasSubstr(said));
  // The error is reported once. The earlier checkpoint still exists, and a smaller one fits.
  EXPECT_TRUE(writer.Flush().ok());
  EXPECT_TRUE(writer.Submit(StateAt(4), {}, count).ok());
  EXPECT_TRUE(writer.Flush().ok());
  EXPECT_EQ(calls, 2);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_THAT(names, ElementsAre("a-step-000000000004.pt", "a-step-000000000004.pt.manifest.json"));
}

TEST(CheckpointFullDiskTest, AFileThatMayNotGrowIsAnErrorAndNothingIsLeft) {
  const TempDir temp;
  InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{300'000, 300'000};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ExpectFullDisk(temp.path(), "raise the limit on the size of files");
  });
}

// Uses a file system of 300 KB if this user may mount one. Otherwise a limit on file sizes
// simulates it, with the same message except for the advice.
TEST(CheckpointFullDiskTest, AFullDiskIsAnErrorAndNothingIsLeft) {
  const TempDir temp;
  InChild([&] {
    const std::string user = absl::StrCat("0 ", getuid(), " 1");
    const std::string group = absl::StrCat("0 ", getgid(), " 1");
    const bool mounted = unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
                         Put("/proc/self/uid_map", user) && Put("/proc/self/setgroups", "deny") &&
                         Put("/proc/self/gid_map", group) &&
                         mount("none", temp.path().c_str(), "tmpfs", 0, "size=300k") == 0;
    if (!mounted) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{250'000, 250'000};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    ExpectFullDisk(temp.path(), mounted ? "free space there" : "raise the limit");
  });
}

TEST(CheckpointWriterTest, WritesInTheBackgroundAndOneAtATime) {
  const TempDir temp;
  CheckpointWriter writer(CheckpointFolder(temp.path(), "a"), {.keep_last = 2, .keep_best = 0});
  absl::Notification entered;
  absl::Notification gate;
  const auto wait = [&](const WrittenCheckpoint& written) {
    EXPECT_EQ(written.size, static_cast<int64_t>(fs::file_size(written.path)));
    entered.Notify();
    gate.WaitForNotification();
  };
  ASSERT_TRUE(writer.Submit(StateAt(1), {}, wait).ok());
  EXPECT_EQ(writer.stalled_seconds(), 0);
  // The second Submit must wait until the callback of the first one has returned.
  entered.WaitForNotification();
  std::thread opener([&] { gate.Notify(); });
  ASSERT_TRUE(writer.Submit(StateAt(2), {}, nullptr).ok());
  EXPECT_TRUE(gate.HasBeenNotified());
  opener.join();
  EXPECT_TRUE(writer.Flush().ok());
  std::vector<std::string> removed;
  ASSERT_TRUE(writer
                  .Submit(StateAt(3), {},
                          [&](const WrittenCheckpoint& written) { removed = written.removed_ids; })
                  .ok());
  ASSERT_TRUE(writer.Flush().ok());
  EXPECT_THAT(removed, ElementsAre("a-step-1"));
}

TEST(CheckpointWriterTest, ItsEndWaitsForTheLastOne) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  {
    CheckpointWriter writer(folder, {});
    ASSERT_TRUE(writer.Submit(StateAt(1, 2000), {.job_id = "a"}, nullptr).ok());
  }
  EXPECT_TRUE(VerifyCheckpoint(folder.Path(1)).ok());
  EXPECT_EQ(ReadManifest(folder.Path(1))->job_id, "a");
}

TEST(CheckpointWriterTest, AFolderThatIsGoneIsAnErrorOfTheNextCall) {
  CheckpointWriter writer(CheckpointFolder("/nowhere/at/all", "a"), {});
  ASSERT_TRUE(writer.Submit(StateAt(1), {}, nullptr).ok());
  EXPECT_THAT(std::string(writer.Flush().message()), HasSubstr("cannot be created"));
  EXPECT_TRUE(writer.Flush().ok());
}

TEST(CheckpointWriterTest, AStateThatIsNotFiniteIsAnErrorAndLeavesTheOneBefore) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  CheckpointWriter writer(folder, {.keep_last = 1});
  ASSERT_TRUE(writer.Submit(StateAt(1), {}, nullptr).ok());
  ASSERT_TRUE(writer.Flush().ok());
  TrainingState state = StateAt(2);
  state.model.front().second.fill_(std::numeric_limits<float>::infinity());
  ASSERT_TRUE(writer.Submit(state, {}, nullptr).ok());
  const absl::Status status = writer.Flush();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), absl::StrCat(state.model.front().first,
                                           " is not finite after step 2; lower "
                                           "optimizer.learning_rate"));
  EXPECT_THAT(folder.Paths(), ElementsAre(folder.Path(1)));
}

TEST(CheckpointRetentionTest, KeepsTheBestByHeldOutLossAlsoAfterARestart) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  const double losses[] = {0.5, 0.1, 0.9, 0.2, 0.8, 0.7};
  for (int64_t i = 0; i < 6; ++i) {
    const CheckpointMeta meta{.job_id = "a", .held_out_loss = losses[i]};
    ASSERT_TRUE(WriteCheckpoint(StateAt(i + 1), folder.Path(i + 1), meta).ok());
  }
  EXPECT_THAT(CheckpointFolder(temp.path(), "a").Retain(2, 6, 2),
              ElementsAre("a-step-3", "a-step-1"));
  EXPECT_THAT(folder.Paths(),
              ElementsAre(folder.Path(6), folder.Path(5), folder.Path(4), folder.Path(2)));
  EXPECT_FALSE(fs::exists(ManifestPath(folder.Path(3))));
  EXPECT_THAT(folder.Retain(0, 6), ElementsAre("a-step-5", "a-step-4", "a-step-2"));
}

TEST(CheckpointRetentionTest, NeverRemovesTheNewestThatVerifies) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(WriteCheckpoint(StateAt(step), folder.Path(step)).ok());
  }
  for (const int64_t step : {3, 4}) fs::resize_file(folder.Path(step), 1000);
  EXPECT_THAT(folder.Retain(1, 4), ElementsAre("a-step-3", "a-step-1"));
  std::vector<std::string> said;
  const auto good =
      NewestGood(folder.Paths(), [&](const std::string& line) { said.push_back(line); });
  EXPECT_EQ(*good, folder.Path(2));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr(folder.Path(4) + " cannot be used: "));
}

}  // namespace
}  // namespace genesis
