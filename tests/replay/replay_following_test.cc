// Tests of a snapshot that moves on with the buffer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "replay/capacity.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A snapshot and the rewards that it has read, which are the numbers of the transitions.
class Reader {
 public:
  explicit Reader(const std::string& folder) {
    auto opened = ReplaySnapshot::Open(
        folder, [this](uint64_t number, const ReplayRowEnd& end) { Note(number, end); });
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) snapshot_.emplace(*std::move(opened));
  }

  // Returns the numbers that are new.
  std::vector<float> ReadNew() {
    const size_t before = rewards_.size();
    status_ =
        snapshot_->ReadNew([this](uint64_t number, const ReplayRowEnd& end) { Note(number, end); });
    return {rewards_.begin() + static_cast<std::ptrdiff_t>(before), rewards_.end()};
  }
  float RewardOf(uint64_t number) const {
    std::vector<float> row(8);
    EXPECT_TRUE(snapshot_->Read(number, 1, reinterpret_cast<char*>(row.data())).ok());
    return row[5];
  }
  const std::vector<float>& rewards() const { return rewards_; }
  const absl::Status& status() const { return status_; }
  ReplaySnapshot& operator*() { return *snapshot_; }

 private:
  void Note(uint64_t number, const ReplayRowEnd& end) {
    EXPECT_EQ(static_cast<float>(number), end.reward);
    rewards_.push_back(end.reward);
  }

  std::optional<ReplaySnapshot> snapshot_;
  std::vector<float> rewards_;
  absl::Status status_;
};

class ReplayFollowingTest : public testing::Test {
 protected:
  ReplayFollowingTest() { Open(1000, 8); }

  void Open(int64_t capacity, int64_t segment) {
    writer_.reset();
    auto writer = ReplayWriter::Open(
        folder_.path(), {.layout = kLayout, .capacity = capacity, .segment_transitions = segment});
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }
  void Append(int count) {
    const auto done = AppendTo(*writer_, absl::StrCat(next_), Numbered(next_, count));
    ASSERT_TRUE(done.ok()) << done.status();
    next_ += count;
  }
  std::string Segment(uint64_t first) const { return folder_.path() + "/" + SegmentName(first); }

  const TempDir folder_;
  std::unique_ptr<ReplayWriter> writer_;
  int next_ = 0;
};

TEST_F(ReplayFollowingTest, ReadsWhatWasAppendedSinceAcrossSegments) {
  Append(3);
  Reader reader(folder_.path());
  EXPECT_THAT(reader.ReadNew(), IsEmpty());
  for (const int count : {1, 4, 30, 7, 8}) {
    const int first = next_;
    Append(count);
    EXPECT_EQ(reader.ReadNew(), Counted(first, count));
    EXPECT_THAT(reader.ReadNew(), IsEmpty());
  }
  EXPECT_EQ(reader.rewards(), Counted(0, next_));
  for (int i = 0; i < next_; ++i) EXPECT_EQ(reader.RewardOf(static_cast<uint64_t>(i)), i);
}

TEST_F(ReplayFollowingTest, KeepsEvictedSegmentsUntilTheyAreForgotten) {
  Open(20, 8);
  Append(8);
  Reader reader(folder_.path());
  while (std::filesystem::exists(Segment(0))) {
    Append(4);
    reader.ReadNew();
  }
  EXPECT_EQ((*reader).FirstInFolder(), 8u);
  EXPECT_EQ(reader.RewardOf(0), 0.0f);
  (*reader).Forget(8);
  EXPECT_EQ((*reader).first(), 8u);
  EXPECT_EQ(reader.RewardOf(8), 8.0f);
}

TEST_F(ReplayFollowingTest, SkipsWhatWasEvictedBeforeItCouldBeRead) {
  Open(20, 8);
  Append(4);
  Reader reader(folder_.path());
  while (next_ < 100) Append(4);
  const std::vector<float> read = reader.ReadNew();
  // The segment that was open when it was evicted is read to its end.
  EXPECT_EQ(std::vector<float>(read.begin(), read.begin() + 4), Counted(4, 4));
  const auto first = static_cast<int>(writer_->first());
  EXPECT_EQ(std::vector<float>(read.begin() + 4, read.end()), Counted(first, next_ - first));
  Append(4);
  EXPECT_EQ(reader.ReadNew(), Counted(next_ - 4, 4));
}

TEST_F(ReplayFollowingTest, ABatchThatIsBeingWrittenIsReadOnceItIsComplete) {
  Append(4);
  Reader reader(folder_.path());
  Append(2);
  std::ifstream in(Segment(0), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t size = kSegmentHeaderSize + kRecordHeaderSize + 8 + 4 * 32; size < whole.size();
       ++size) {
    std::ofstream(Segment(0), std::ios::binary).write(whole.data(), static_cast<int>(size));
    EXPECT_THAT(reader.ReadNew(), IsEmpty()) << size;
    EXPECT_TRUE(reader.status().ok()) << reader.status();
  }
  std::ofstream(Segment(0), std::ios::binary) << whole;
  EXPECT_EQ(reader.ReadNew(), Counted(4, 2));
}

TEST_F(ReplayFollowingTest, DamageIsReportedOnceItIsCertain) {
  Append(4);
  Reader reader(folder_.path());
  Append(4);
  std::fstream file(Segment(0), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-4, std::ios::end);
  file.put('x');
  file.close();
  EXPECT_THAT(reader.ReadNew(), IsEmpty());
  EXPECT_TRUE(reader.status().ok()) << "it may be a batch that is being written";
  Append(8);
  reader.ReadNew();
  EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
}

TEST_F(ReplayFollowingTest, RemovalOfTheBufferIsReported) {
  Append(4);
  Reader reader(folder_.path());
  std::filesystem::remove(Segment(0));
  reader.ReadNew();
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("was removed"));
}

TEST_F(ReplayFollowingTest, ReadsEachTransitionOnceWhileTheWriterWorks) {
  Open(200, 32);
  Append(7);
  Reader reader(folder_.path());
  std::atomic<bool> done = false;
  std::thread follower([&] {
    while (!done) {
      reader.ReadNew();
      ASSERT_TRUE(reader.status().ok()) << reader.status();
      (*reader).Forget((*reader).FirstInFolder());
    }
  });
  while (next_ < 7 * 250) Append(7);
  done = true;
  follower.join();
  reader.ReadNew();
  EXPECT_EQ(reader.rewards().back(), static_cast<float>(next_ - 1));
  for (size_t i = 1; i < reader.rewards().size(); ++i) {
    ASSERT_LT(reader.rewards()[i - 1], reader.rewards()[i]);
  }
}

TEST(ReplayCapacityTest, IsReadAsItWasWritten) {
  const TempDir folder;
  EXPECT_EQ(*ReadReplayCapacity(folder.path()), std::nullopt);
  ASSERT_TRUE(WriteReplayCapacity(folder.path(), 4096).ok());
  EXPECT_EQ(*ReadReplayCapacity(folder.path()), 4096);
  folder.Write("capacity", "many");
  EXPECT_TRUE(absl::IsDataLoss(ReadReplayCapacity(folder.path()).status()));
}

}  // namespace
}  // namespace genesis
