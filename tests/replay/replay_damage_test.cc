#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A segment with three records of two transitions each, and the offset of each record.
struct Sample {
  std::string segment;
  std::vector<size_t> begins;
};

Sample MakeSample() {
  const TempDir folder;
  Sample sample;
  const std::string path = folder.path() + "/" + SegmentName(0);
  auto writer = ReplayWriter::Open(folder.path(), {.layout = kLayout, .capacity = 1000});
  for (int first = 0; first < 6; first += 2) {
    EXPECT_TRUE(AppendTo(**writer, absl::StrCat("batch ", first), Numbered(first, 2)).ok());
    if (first == 0) sample.begins.push_back(kSegmentHeaderSize);
    sample.begins.push_back(std::filesystem::file_size(path));
  }
  sample.segment = ReadFile(path);
  return sample;
}

absl::StatusOr<int64_t> SizeWhenOpened(const std::string& folder, std::string* repaired) {
  const auto writer = ReplayWriter::Open(folder, {.layout = kLayout, .capacity = 1000});
  if (!writer.ok()) return writer.status();
  *repaired = (*writer)->repaired();
  return (*writer)->size();
}

// A crash may leave any part of the last record, and zeros in place of data not yet written.
TEST(ReplayDamageTest, CutsATornRecordAtEveryByte) {
  const Sample sample = MakeSample();
  const size_t begin = sample.begins[2];
  for (size_t size = begin; size < sample.segment.size(); ++size) {
    for (const bool zeros : {false, true}) {
      const TempDir folder;
      std::string torn = sample.segment.substr(0, size);
      if (zeros) torn.resize(sample.segment.size());
      // The last row ends with zeros: its flags and the missing priority.
      if (torn == sample.segment) continue;
      folder.Write(SegmentName(0), torn);
      // Readers ignore the torn record ...
      const auto rewards = Rewards(folder.path());
      ASSERT_TRUE(rewards.ok()) << size << rewards.status();
      EXPECT_EQ(*rewards, Counted(0, 4)) << size;
      // ... and a writer removes it and continues.
      auto writer = ReplayWriter::Open(folder.path(), {.layout = kLayout, .capacity = 1000});
      ASSERT_TRUE(writer.ok()) << size << writer.status();
      EXPECT_EQ((*writer)->size(), 4) << size;
      EXPECT_EQ((*writer)->repaired().empty(), torn.size() == begin) << size;
      ASSERT_TRUE(AppendTo(**writer, "batch 4", Numbered(4, 2)).ok());
      EXPECT_EQ(*Rewards(folder.path()), Counted(0, 6));
    }
  }
}

TEST(ReplayDamageTest, RefusesDamageBeforeTheLastRecord) {
  const Sample sample = MakeSample();
  for (size_t at = 0; at < sample.begins[2]; ++at) {
    const TempDir folder;
    std::string damaged = sample.segment;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.Write(SegmentName(0), damaged);
    EXPECT_TRUE(absl::IsDataLoss(Rewards(folder.path()).status())) << at;
    std::string repaired;
    EXPECT_TRUE(absl::IsDataLoss(SizeWhenOpened(folder.path(), &repaired).status())) << at;
    // A damaged file must not be truncated.
    EXPECT_EQ(ReadFile(folder.path() + "/" + SegmentName(0)), damaged);
  }
}

TEST(ReplayDamageTest, SaysWhatIsDamagedAndWhatToDo) {
  const Sample sample = MakeSample();
  const TempDir folder;
  std::string damaged = sample.segment;
  damaged[sample.begins[1] + 60] ^= 1;
  folder.Write(SegmentName(0), damaged);
  const std::string path = folder.path() + "/" + SegmentName(0);
  EXPECT_EQ(Rewards(folder.path()).status().message(),
            absl::StrCat(path, ": the record at byte ", sample.begins[1],
                         " is damaged; restore this segment from a copy, or move it and all older "
                         "ones out of the folder"));
}

TEST(ReplayDamageTest, NoticesAMissingSegment) {
  const TempDir folder;
  {
    auto writer = ReplayWriter::Open(
        folder.path(), {.layout = kLayout, .capacity = 1000, .segment_transitions = 4});
    for (int first = 0; first < 16; first += 4) {
      ASSERT_TRUE(AppendTo(**writer, absl::StrCat(first), Numbered(first, 4)).ok());
    }
  }
  std::filesystem::remove(folder.path() + "/" + SegmentName(8));
  EXPECT_THAT(std::string(Rewards(folder.path()).status().message()),
              HasSubstr("transitions 8 to 12 are missing"));
  std::string repaired;
  EXPECT_THAT(std::string(SizeWhenOpened(folder.path(), &repaired).status().message()),
              HasSubstr("transitions 8 to 12 are missing between two segments"));
}

TEST(ReplayDamageTest, MakesALostOrDamagedIndexAgain) {
  const TempDir folder;
  {
    auto writer = ReplayWriter::Open(
        folder.path(), {.layout = kLayout, .capacity = 1000, .segment_transitions = 4});
    for (int first = 0; first < 16; first += 2) {
      ASSERT_TRUE(AppendTo(**writer, absl::StrCat(first), Numbered(first, 2)).ok());
    }
  }
  const std::string index = folder.path() + "/00000000000000000004.index";
  const std::string sound = ReadFile(index);
  ASSERT_FALSE(sound.empty());
  for (size_t at = 0; at <= sound.size(); ++at) {
    std::string damaged = sound.substr(0, at);
    if (at % 2 == 0 && at < sound.size()) damaged = sound, damaged[at] ^= 0x40;
    if (at == sound.size()) std::filesystem::remove(index);
    if (at < sound.size()) folder.Write("00000000000000000004.index", damaged);
    const auto writer = ReplayWriter::Open(
        folder.path(), {.layout = kLayout, .capacity = 1000, .segment_transitions = 4});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_EQ((*writer)->size(), 16);
    EXPECT_TRUE(AppendTo(**writer, "6", Numbered(6, 2))->repeated);
    EXPECT_EQ(ReadFile(index), sound);
  }
}

TEST(ReplayDamageTest, NamesAnEmptyFolderAndAMissingOne) {
  const TempDir folder;
  EXPECT_THAT(std::string(Rewards(folder.path()).status().message()),
              HasSubstr("holds no replay buffer"));
  EXPECT_THAT(std::string(Rewards(folder.path() + "/no").status().message()),
              HasSubstr("no such folder"));
}

// For any content of a segment, expects an error or valid rows, within 1 GiB of address space.
TEST(ReplayDamageTest, SurvivesMutations) {
  const Sample sample = MakeSample();
  const TempDir folder;
  std::mt19937_64 random(20240);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string mutated = sample.segment;
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % mutated.size();
      switch (random() % 4) {
        case 0:
          mutated[at] = static_cast<char>(random());
          break;
        case 1:
          mutated.resize(at + 1);
          break;
        case 2:
          mutated.insert(at, mutated.substr(random() % mutated.size(), random() % 64));
          break;
        default:
          mutated.replace(at, std::min<size_t>(8, mutated.size() - at), 8, '\xFF');
      }
    }
    std::filesystem::remove(folder.path() + "/" + SegmentName(0));  // Faster than truncating it.
    folder.Write(SegmentName(0), mutated);
    const auto rewards = Rewards(folder.path());
    if (!rewards.ok()) {
      ++refused;
      continue;
    }
    const auto size = static_cast<int>(rewards->size());
    EXPECT_LE(size, 6);
    EXPECT_EQ(*rewards, Counted(0, size));
  }
  EXPECT_GT(refused, 1200);
}

}  // namespace
}  // namespace genesis

#ifndef GENESIS_SANITIZED
namespace {
// Limits memory, because a wrong length must not become a huge allocation.
[[maybe_unused]] const int kMemoryIsBounded = [] {
  const rlimit limit{uint64_t{1} << 30, uint64_t{1} << 30};
  return setrlimit(RLIMIT_AS, &limit);
}();
}  // namespace
#endif
