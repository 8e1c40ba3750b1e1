#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<ReplayWriter> OpenWriter(const std::string& folder, int64_t capacity = 1000,
                                         int64_t segment = 8) {
  auto writer = ReplayWriter::Open(
      folder, {.layout = kLayout, .capacity = capacity, .segment_transitions = segment});
  EXPECT_TRUE(writer.ok()) << writer.status();
  return writer.ok() ? *std::move(writer) : nullptr;
}

TEST(Crc32cTest, GivesTheNumbersOfRfc3720) {
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xFF').data(), 32), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(Crc32c(0, "1234", 4), "56789", 5), 0xE3069283u);
}

TEST(Crc32cTest, PiecesAreCombined) {
  std::string text(100'000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i + i / 7);
  const uint32_t whole = Crc32c(0, text.data(), text.size());
  for (const size_t cut : {0, 1, 7, 8, 4096, 65535, 99'999, 100'000}) {
    const uint32_t first = Crc32c(0, text.data(), cut);
    const uint32_t second = Crc32c(0, text.data() + cut, text.size() - cut);
    EXPECT_EQ(CombineCrc32c(first, second, text.size() - cut), whole) << cut;
  }
}

TEST(ReplayBufferTest, KeepsWhatWasAppendedAcrossOpenings) {
  const TempDir folder;
  const std::string path = folder.path() + "/buffer";
  for (int run = 0; run < 3; ++run) {
    const auto writer = OpenWriter(path);
    ASSERT_NE(writer, nullptr);
    EXPECT_EQ(writer->size(), run * 10);
    EXPECT_EQ(writer->repaired(), "");
    for (int batch = 0; batch < 2; ++batch) {
      const int first = run * 10 + batch * 5;
      const auto done = AppendTo(*writer, absl::StrCat("batch-", first), Numbered(first, 5));
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(done->first, first);
      EXPECT_EQ(done->count, 5);
      EXPECT_FALSE(done->repeated);
    }
  }
  const auto rewards = Rewards(path);
  ASSERT_TRUE(rewards.ok()) << rewards.status();
  EXPECT_EQ(*rewards, Counted(0, 30));
}

TEST(ReplayBufferTest, ReadsRowsAcrossRecordsAndSegments) {
  const TempDir folder;
  const auto writer = OpenWriter(folder.path());
  for (int first = 0; first < 30; first += 3) {
    ASSERT_TRUE(AppendTo(*writer, absl::StrCat(first), Numbered(first, 3)).ok());
  }
  EXPECT_GT(writer->segments(), 3u);
  const auto snapshot = ReplaySnapshot::Open(folder.path(), [](uint64_t, const ReplayRowEnd&) {});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  for (int first = 0; first < 30; ++first) {
    for (int count = 1; count <= 30 - first; ++count) {
      std::vector<float> rows(static_cast<size_t>(count) * 8);
      ASSERT_EQ(snapshot->layout().row_bytes(), 8 * sizeof(float));
      ASSERT_TRUE(
          snapshot->Read(static_cast<uint64_t>(first), count, reinterpret_cast<char*>(rows.data()))
              .ok());
      for (int i = 0; i < count; ++i) {
        const auto x = static_cast<float>(first + i);
        EXPECT_THAT(std::vector<float>(rows.begin() + i * 8, rows.begin() + i * 8 + 6),
                    ElementsAre(x, -x, x / 2, x + 1, -x - 1, x));
      }
    }
  }
}

TEST(ReplayBufferTest, TakesABatchOnce) {
  const TempDir folder;
  auto writer = OpenWriter(folder.path());
  ASSERT_TRUE(AppendTo(*writer, "a", Numbered(0, 4)).ok());
  ASSERT_TRUE(AppendTo(*writer, "b", Numbered(4, 6)).ok());
  for (int opened = 0; opened < 2; ++opened) {
    const auto again = AppendTo(*writer, "a", Numbered(0, 4));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(again->repeated);
    EXPECT_EQ(again->first, 0);
    EXPECT_EQ(again->count, 4);
    EXPECT_EQ(writer->size(), 10);
    const auto other = AppendTo(*writer, "b", Numbered(5, 6));
    EXPECT_TRUE(absl::IsAlreadyExists(other.status()));
    EXPECT_THAT(std::string(other.status().message()),
                HasSubstr("batch \"b\" is in the buffer with other transitions"));
    EXPECT_TRUE(absl::IsAlreadyExists(AppendTo(*writer, "b", Numbered(4, 5)).status()));
    writer.reset();
    writer = OpenWriter(folder.path());
  }
  EXPECT_EQ(*Rewards(folder.path()), Counted(0, 10));
}

TEST(ReplayBufferTest, RemovesTheOldestSegmentsWhole) {
  const TempDir folder;
  auto writer = OpenWriter(folder.path(), 20, 8);
  for (int first = 0; first < 100; first += 4) {
    ASSERT_TRUE(AppendTo(*writer, absl::StrCat(first), Numbered(first, 4)).ok());
    EXPECT_LE(writer->size(), 20);
    EXPECT_EQ(static_cast<int>(writer->first()) + writer->size(), first + 4);
  }
  EXPECT_GE(writer->size(), 12);
  const auto first = static_cast<int>(writer->first());
  EXPECT_EQ(first % 8, 0);
  writer.reset();
  EXPECT_EQ(*Rewards(folder.path()), Counted(first, 100 - first));
  // The ID of an evicted batch may be used again.
  EXPECT_FALSE(AppendTo(*OpenWriter(folder.path(), 20, 8), "0", Numbered(0, 4))->repeated);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_LE(files, 3u + 3u + 1u);
}

// A disk refuses a write or is full. Nothing must be appended, and the next append
// must start at a clean end.
TEST(ReplayBufferTest, AppendsAgainAfterTheDiskWasFull) {
  const TempDir folder;
  const auto writer = OpenWriter(folder.path(), 100000, 100000);
  ASSERT_TRUE(AppendTo(*writer, "a", Numbered(0, 10)).ok());
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  const rlimit full{2000, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status refused = AppendTo(*writer, "b", Numbered(10, 100)).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(*Rewards(folder.path()), Counted(0, 10));
  EXPECT_EQ(std::filesystem::file_size(folder.path() + "/" + SegmentName(0)),
            kSegmentHeaderSize + kRecordHeaderSize + 8 + 10 * 32);
  const auto again = AppendTo(*writer, "b", Numbered(10, 100));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->repeated);
  EXPECT_EQ(*Rewards(folder.path()), Counted(0, 110));
}

// Opens the buffer for reading again and again during appends and evictions.
TEST(ReplayBufferTest, ReadersSeeWholeBatchesWhileTheWriterWorks) {
  const TempDir folder;
  const auto writer = OpenWriter(folder.path(), 200, 32);
  ASSERT_TRUE(AppendTo(*writer, "0", Numbered(0, 7)).ok());
  std::atomic<bool> done = false;
  std::thread reader([&] {
    int opened = 0;
    for (; !done || opened == 0; ++opened) {
      const auto rewards = Rewards(folder.path());
      ASSERT_TRUE(rewards.ok()) << rewards.status();
      ASSERT_FALSE(rewards->empty());
      EXPECT_EQ(rewards->size() % 7, 0u);
      EXPECT_EQ(*rewards,
                Counted(static_cast<int>(rewards->front()), static_cast<int>(rewards->size())));
    }
  });
  for (int first = 7; first < 7 * 250; first += 7) {
    ASSERT_TRUE(AppendTo(*writer, absl::StrCat(first), Numbered(first, 7)).ok());
  }
  done = true;
  reader.join();
}

TEST(ReplayBufferTest, ASnapshotStaysAsItWas) {
  const TempDir folder;
  const auto writer = OpenWriter(folder.path(), 20, 8);
  ASSERT_TRUE(AppendTo(*writer, "first", Numbered(0, 10)).ok());
  const auto snapshot = ReplaySnapshot::Open(folder.path(), [](uint64_t, const ReplayRowEnd&) {});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->Describe(), "1 segment, transitions 0 to 9");
  for (int first = 10; first < 100; first += 10) {
    ASSERT_TRUE(AppendTo(*writer, absl::StrCat(first), Numbered(first, 10)).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/" + SegmentName(0)));
  EXPECT_EQ(snapshot->size(), 10);
  std::vector<float> row(8);
  ASSERT_TRUE(snapshot->Read(9, 1, reinterpret_cast<char*>(row.data())).ok());
  EXPECT_EQ(row[5], 9.0f);
}

TEST(ReplayBufferTest, HasOneWriter) {
  const TempDir folder;
  const auto writer = OpenWriter(folder.path());
  const auto second = ReplayWriter::Open(folder.path(), {.layout = kLayout});
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another writer holds this replay buffer"));
}

TEST(ReplayBufferTest, RefusesWhatCannotBeTrainedOn) {
  const TempDir folder;
  const auto writer = OpenWriter(folder.path(), 10);
  const auto fault = [&writer](const std::string& id, auto change) {
    std::vector<ReplayTransition> transitions = Numbered(0, 2);
    change(transitions);
    const auto done = AppendTo(*writer, id, transitions);
    EXPECT_TRUE(absl::IsInvalidArgument(done.status())) << done.status();
    return std::string(done.status().message());
  };
  const float nan = std::nanf("");
  EXPECT_EQ(fault("a", [&](auto& t) { t[1].observation[1] = nan; }),
            "transition 1: observations[1] is nan; every value must be finite");
  EXPECT_EQ(fault("a", [&](auto& t) { t[0].reward = -INFINITY; }),
            "transition 0: reward is -inf; every value must be finite");
  EXPECT_EQ(
      fault("a", [&](auto& t) { t[0].action.clear(); }),
      "column actions has 4 bytes; accepted: 8 (2 transitions x 4 bytes of actions float32 [1])");
  EXPECT_EQ(fault("a", [&](auto& t) { t[1].priority = 0.0f; }),
            "transition 1: priority is 0; accepted: a finite number > 0, or none");
  EXPECT_EQ(fault("a", [&](auto& t) { t.clear(); }),
            "the batch has 0 transitions; accepted in this buffer: 1 to 10");
  EXPECT_EQ(fault("a", [&](auto& t) { t = Numbered(0, 11); }),
            "the batch has 11 transitions; accepted in this buffer: 1 to 10");
  EXPECT_EQ(fault("", [](auto&) {}), "the batch id has 0 bytes; accepted: 1 to 255");
  EXPECT_EQ(fault(std::string(256, 'x'), [](auto&) {}),
            "the batch id has 256 bytes; accepted: 1 to 255");
  EXPECT_EQ(writer->size(), 0);
}

TEST(ReplayBufferTest, RefusesAnotherLayout) {
  const TempDir folder;
  ASSERT_TRUE(AppendTo(*OpenWriter(folder.path()), "a", Numbered(0, 2)).ok());
  const auto other = ReplayWriter::Open(folder.path(), {.layout = ReplayLayout::OfVectors(3, 1)});
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
  EXPECT_THAT(
      std::string(other.status().message()),
      HasSubstr(
          "column observations is float32 [2] in this buffer and float32 [3] in the request"));
}

// Kills a writer repeatedly while it appends. Acknowledged batches must be kept.
TEST(ReplayBufferTest, KeepsWhatWasAcknowledgedWhenTheWriterIsKilled) {
  const TempDir folder;
  int expected = 0;
  for (int round = 0; round < 5; ++round) {
    int acknowledged[2];
    ASSERT_EQ(pipe(acknowledged), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto writer = ReplayWriter::Open(
          folder.path(), {.layout = kLayout, .capacity = 1'000'000, .segment_transitions = 512});
      if (!writer.ok()) _exit(1);
      for (auto first = static_cast<int>((*writer)->size());; first += 100) {
        if (!AppendTo(**writer, absl::StrCat(first), Numbered(first, 100)).ok()) _exit(2);
        if (write(acknowledged[1], "x", 1) != 1) _exit(3);
      }
    }
    close(acknowledged[1]);
    char byte = 0;
    for (int i = 0; i < 7 + 3 * round; ++i) {
      ASSERT_EQ(read(acknowledged[0], &byte, 1), 1);
      expected += 100;
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    while (read(acknowledged[0], &byte, 1) == 1) expected += 100;
    close(acknowledged[0]);
    const auto writer = OpenWriter(folder.path(), 1'000'000, 512);
    ASSERT_NE(writer, nullptr);
    // One more batch than was acknowledged may be durable.
    EXPECT_GE(writer->size(), expected);
    EXPECT_LE(writer->size(), expected + 100);
    expected = static_cast<int>(writer->size());
  }
  EXPECT_EQ(*Rewards(folder.path()), Counted(0, expected));
}

}  // namespace
}  // namespace genesis
