#include "trainer/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temp_dir.h"
#include "trainer/checkpoint/durable_file.h"

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

// After a corrupt checkpoint of step 300 the job went on from 100 and is now at 200.
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
