#include "trainer/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "base/files/crc32c.h"
#include "base/files/durable_file.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CheckpointFolderTest, NamesFilesByJobAndStep) {
  const CheckpointFolder folder("/data/", "run-7");
  EXPECT_EQ(folder.Path(1500), "/data/run-7-step-000000001500.pt");
  EXPECT_EQ(folder.Id(1500), "run-7-step-1500");
}

TEST(CheckpointFolderTest, KeepsTheNewestOfItsOwnJob) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  for (const int step : {100, 200, 300}) temp.Write(fs::path(folder.Path(step)).filename(), "x");
  temp.Write("a-step-1-step-000000000001.pt", "another job's");
  temp.Write("a-step-best.pt", "a user's");
  EXPECT_THAT(folder.Retain(2, 300), ElementsAre("a-step-100"));
  EXPECT_THAT(folder.Retain(2, 300), IsEmpty());
  EXPECT_TRUE(fs::exists(temp.path() + "/a-step-1-step-000000000001.pt"));
  EXPECT_TRUE(fs::exists(temp.path() + "/a-step-best.pt"));
}

TEST(CheckpointFolderTest, KeepsTheBestByValuesFromOutside) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  for (const int step : {100, 200, 300, 400}) {
    temp.Write(fs::path(folder.Path(step)).filename(), "x");
  }
  const auto badness = [](int64_t step) -> std::optional<double> {
    if (step == 100) return std::nullopt;
    return step == 200 ? -5 : 3;
  };
  EXPECT_THAT(folder.Retain(1, 400, 1, 400, badness), ElementsAre("a-step-300", "a-step-100"));
  EXPECT_TRUE(fs::exists(folder.Path(200)));
}

// Because the checkpoint of step 300 was corrupt, the job continued from 100 and is now at 200.
TEST(CheckpointFolderTest, RemovesCheckpointsOfAnAbandonedCourseFirst) {
  const TempDir temp;
  const CheckpointFolder folder(temp.path(), "a");
  for (const int step : {100, 200, 300}) temp.Write(fs::path(folder.Path(step)).filename(), "x");
  EXPECT_THAT(folder.Retain(1, 200), ElementsAre("a-step-100", "a-step-300"));
  EXPECT_TRUE(fs::exists(folder.Path(200)));
}

TEST(CheckpointFolderTest, RemovesWhatAKilledWorkerLeft) {
  const TempDir temp;
  temp.Write(".a-step-000000000100.pt.tmp-77-0", "half");
  temp.Write(".b-step-000000000100.pt.tmp-77-0", "another job's");
  CheckpointFolder folder(temp.path(), "a");
  ASSERT_TRUE(folder.Prepare().ok());
  EXPECT_FALSE(fs::exists(temp.path() + "/.a-step-000000000100.pt.tmp-77-0"));
  EXPECT_TRUE(fs::exists(temp.path() + "/.b-step-000000000100.pt.tmp-77-0"));
}

TEST(CheckpointFolderTest, RemovesManifestsWithoutTheirCheckpoint) {
  const TempDir temp;
  temp.Write("a-step-000000000100.pt.manifest.json", "{}");
  temp.Write("a-step-000000000200.pt.manifest.json", "{}");
  temp.Write("a-step-000000000200.pt", "x");
  temp.Write("b-step-000000000100.pt.manifest.json", "another job's");
  CheckpointFolder folder(temp.path(), "a");
  ASSERT_TRUE(folder.Prepare().ok());
  EXPECT_FALSE(fs::exists(temp.path() + "/a-step-000000000100.pt.manifest.json"));
  EXPECT_TRUE(fs::exists(temp.path() + "/a-step-000000000200.pt.manifest.json"));
  EXPECT_TRUE(fs::exists(temp.path() + "/b-step-000000000100.pt.manifest.json"));
}

TEST(Crc32cTest, IsThatOfThePublishedVectorsWithAndWithoutTheInstruction) {
  // Test vectors of RFC 3720, B.4.
  std::string ascending(32, '\0');
  for (size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
  const std::pair<std::string, uint32_t> vectors[] = {{"123456789", 0xE3069283},
                                                      {std::string(32, '\0'), 0x8A9136AA},
                                                      {std::string(32, '\xff'), 0x62A8AB43},
                                                      {ascending, 0x46DD794E},
                                                      {"", 0}};
  for (const auto& [bytes, crc] : vectors) {
    EXPECT_EQ(Crc32c(0, bytes.data(), bytes.size()), crc);
    EXPECT_EQ(Crc32cPortable(0, bytes.data(), bytes.size()), crc);
  }
  // Computes the checksum in two pieces of every length, the second at every alignment.
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  const uint32_t whole = Crc32cPortable(0, text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = Crc32c(0, text.data(), cut);
    EXPECT_EQ(Crc32c(first, text.data() + cut, text.size() - cut), whole);
    EXPECT_EQ(Crc32cPortable(first, text.data() + cut, text.size() - cut), whole);
  }
}

TEST(DurableFileTest, AppearsOnlyWhenCommitted) {
  const TempDir temp;
  const std::string path = temp.path() + "/x.pt";
  {
    auto file = DurableFile::Create(path);
    ASSERT_TRUE(file.ok());
    file->Write("half", 4);
  }
  EXPECT_TRUE(fs::is_empty(temp.path()));
  auto file = DurableFile::Create(path);
  file->Write("whole", 5);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(file->Commit().ok());
  EXPECT_EQ(fs::file_size(path), 5u);
}

TEST(DurableFileTest, SaysWhichFileCannotBeMade) {
  const auto file = DurableFile::Create("/nowhere/at/all/x.pt");
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("cannot be created: No such file"));
}

}  // namespace
}  // namespace genesis
